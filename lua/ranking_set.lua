#!lua
-- ranking_set: put absolute scores, counted in the database, into one ranking.
-- version 2 | any stage | writes | O(concerts × log ranking)
--
-- A score counts only if it is not older than the stored one, so late and repeated calls change nothing.
--
-- KEYS 1 ranking   zset   concert by score
-- KEYS 2 as_of     hash   concert: when its score was counted, ms; `*`: when all of them were
-- ARGV 1 as_of     int    ms, by the clock of the database
-- ARGV 2 lasts     int    ms until Redis may drop the ranking; 0: never
-- ARGV 3 whole     int    1: all concerts are here, so that the ranking counts as built; 0: only some
-- ARGV 4 concert   concert score …   two words each; an empty score takes the concert out
--
-- REPLY RANKED n   n of the scores were not older than the stored ones
--
-- KEEPS a concert has the newest score that was counted

local RANKING, AS_OF = unpack(KEYS)
local as_of, lasts, whole = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local ranked = 0
for i = 4, #ARGV, 2 do
  local concert, score = ARGV[i], ARGV[i + 1]
  if tonumber(redis.call('HGET', AS_OF, concert) or 0) <= as_of then
    redis.call('HSET', AS_OF, concert, as_of)
    if score == '' then
      redis.call('ZREM', RANKING, concert)
    else
      redis.call('ZADD', RANKING, score, concert)
    end
    ranked = ranked + 1
  end
end
if whole == '1' then redis.call('HSET', AS_OF, '*', as_of) end
if lasts > 0 then
  redis.call('PEXPIRE', RANKING, lasts)
  redis.call('PEXPIRE', AS_OF, lasts)
end
return { 'RANKED', ranked }
