#!lua flags=allow-oom
-- seat_release: a visitor gives held seats back.
-- version 1 | stage 3 | writes | O(seats)
--
-- KEYS 1 meta       hash
-- KEYS 2 line       bitmap  who waits
-- KEYS 3 seats      bytes   a, h or s for each seat
-- KEYS 4 owners     hash    seat: place that holds or bought it
-- KEYS 5 hold_ends  zset    seat by deadline, ms
-- KEYS 6 held       hash    place: the seats it holds
-- ARGV 1 place      int
-- ARGV 2 seat       int …
--
-- REPLY RELEASED n            n were given back; a seat that was free already counts as done
-- REPLY NOT_YOURS seat state  someone else holds or bought it, or this place bought it
-- REPLY NO_SEAT seat          there is no such seat
-- REPLY UNREADY               the event is not here, or only a part of it
--
-- KEEPS a seat is in hold_ends exactly when its byte says held

local place = ARGV[1]
local meta = redis.call('HMGET', KEYS[1], 'now', 'skew', 'waiting', 'seats')
local waiting = tonumber(meta[3])
if not waiting or (waiting > 0 and redis.call('EXISTS', KEYS[2]) == 0) then return { 'UNREADY' } end

local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = math.max(clock + meta[2], tonumber(meta[1]))

local giving = {}
for i = 2, #ARGV do
  local seat = tonumber(ARGV[i])
  if seat < 1 or seat > tonumber(meta[4]) then return { 'NO_SEAT', seat } end
  local state = redis.call('GETRANGE', KEYS[3], seat - 1, seat - 1)
  if state == 's' then return { 'NOT_YOURS', seat, 'sold' } end
  if state == 'h' then
    if redis.call('HGET', KEYS[4], seat) ~= place then return { 'NOT_YOURS', seat, 'held' } end
    giving[tostring(seat)] = true
  end
end

local given, kept = 0, {}
for seat in string.gmatch(redis.call('HGET', KEYS[6], place) or '', '%d+') do
  if giving[seat] then
    redis.call('SETRANGE', KEYS[3], seat - 1, 'a')
    redis.call('HDEL', KEYS[4], seat)
    redis.call('ZREM', KEYS[5], seat)
    given = given + 1
  else
    kept[#kept + 1] = seat
  end
end
if given > 0 then
  if #kept > 0 then
    redis.call('HSET', KEYS[6], place, table.concat(kept, ' '))
  else
    redis.call('HDEL', KEYS[6], place)
  end
  redis.call('HINCRBY', KEYS[1], 'seats_version', 1)
  redis.call('HSET', KEYS[1], 'now', now, 'skew', now - clock)
end
return { 'RELEASED', given }
