#!lua flags=allow-oom
-- line_leave: a visitor gives up the place or the pass, with its holds.
-- version 1 | stage 1 | writes | O(seats held)
--
-- KEYS 1 meta       hash
-- KEYS 2 line       bitmap  who waits
-- KEYS 3 back       bitmap  places of the gap that may not return (again)
-- KEYS 4 passes     zset    place by deadline, ms
-- KEYS 5 limits     hash    place: latest moment its pass can be stretched to
-- KEYS 6 seats      bytes   a, h or s for each seat
-- KEYS 7 owners     hash    seat: place that holds or bought it
-- KEYS 8 hold_ends  zset    seat by deadline, ms
-- KEYS 9 held       hash    place: the seats it holds
-- ARGV 1 place      int
--
-- REPLY LEFT      given up now
-- REPLY GONE      there was nothing to give up
-- REPLY UNREADY   the event is not here, or only a part of it
--
-- KEEPS a seat is in hold_ends exactly when its byte says held

local place = tonumber(ARGV[1])
local meta = redis.call('HMGET', KEYS[1], 'now', 'skew', 'waiting', 'base', 'next', 'head', 'gap_from', 'gap_to')
local waiting = tonumber(meta[3])
if not waiting or (waiting > 0 and redis.call('EXISTS', KEYS[2]) == 0) then return { 'UNREADY' } end

local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = math.max(clock + meta[2], tonumber(meta[1]))

local base, next_place, head = tonumber(meta[4]), tonumber(meta[5]), tonumber(meta[6])
local at = place - base
local gone = true

-- In the line.
if place >= base and place < next_place and redis.call('GETBIT', KEYS[2], at) == 1 then
  redis.call('SETBIT', KEYS[2], at, 0)
  waiting = waiting - 1
  if waiting == 0 then
    head = next_place
  elseif place == head then
    head = base + redis.call('BITPOS', KEYS[2], 1, math.floor(at / 8))
  end
  redis.call('HSET', KEYS[1], 'waiting', waiting, 'head', head)
  redis.call('HINCRBY', KEYS[1], 'line_version', 1)
  gone = false
end

-- Lost by a restore and not yet back: leaving is final.
if place >= base and place >= tonumber(meta[7]) and place < tonumber(meta[8])
  and redis.call('SETBIT', KEYS[3], at, 1) == 0 then
  redis.call('HINCRBY', KEYS[1], 'line_version', 1)
  gone = false
end

-- Inside.
if redis.call('ZREM', KEYS[4], place) == 1 then
  redis.call('HDEL', KEYS[5], place)
  for seat in string.gmatch(redis.call('HGET', KEYS[9], place) or '', '%d+') do
    redis.call('SETRANGE', KEYS[6], seat - 1, 'a')
    redis.call('HDEL', KEYS[7], seat)
    redis.call('ZREM', KEYS[8], seat)
  end
  if redis.call('HDEL', KEYS[9], place) == 1 then redis.call('HINCRBY', KEYS[1], 'seats_version', 1) end
  redis.call('HINCRBY', KEYS[1], 'passes_version', 1)
  gone = false
end

if gone then return { 'GONE' } end
redis.call('HINCRBY', KEYS[1], 'left', 1)
redis.call('HSET', KEYS[1], 'now', now, 'skew', now - clock)
return { 'LEFT' }
