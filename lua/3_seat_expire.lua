#!lua flags=allow-oom
-- seat_expire: overdue holds become available again, a bounded number a call.
-- version 1 | stage 3 | writes | O(most)
--
-- KEYS 1 meta       hash
-- KEYS 2 line       bitmap  who waits
-- KEYS 3 seats      bytes   a, h or s for each seat
-- KEYS 4 owners     hash    seat: place that holds or bought it
-- KEYS 5 hold_ends  zset    seat by deadline, ms
-- KEYS 6 held       hash    place: the seats it holds
-- ARGV 1 most       int     seats to free in this call
--
-- REPLY EXPIRED n   n were freed; as many as asked for means there may be more
-- REPLY UNREADY     the event is not here, or only a part of it
--
-- KEEPS a seat is in hold_ends exactly when its byte says held

local meta = redis.call('HMGET', KEYS[1], 'now', 'skew', 'waiting')
local waiting = tonumber(meta[3])
if not waiting or (waiting > 0 and redis.call('EXISTS', KEYS[2]) == 0) then return { 'UNREADY' } end

local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = math.max(clock + meta[2], tonumber(meta[1]))

local overdue = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, seat in ipairs(overdue) do
  local owner = redis.call('HGET', KEYS[4], seat)
  local kept = {}
  for other in string.gmatch(redis.call('HGET', KEYS[6], owner) or '', '%d+') do
    if other ~= seat then kept[#kept + 1] = other end
  end
  if #kept > 0 then
    redis.call('HSET', KEYS[6], owner, table.concat(kept, ' '))
  else
    redis.call('HDEL', KEYS[6], owner)
  end
  redis.call('SETRANGE', KEYS[3], seat - 1, 'a')
  redis.call('HDEL', KEYS[4], seat)
  redis.call('ZREM', KEYS[5], seat)
end
if #overdue > 0 then
  redis.call('HINCRBY', KEYS[1], 'seats_version', 1)
  redis.call('HSET', KEYS[1], 'now', now, 'skew', now - clock)
end
return { 'EXPIRED', #overdue }
