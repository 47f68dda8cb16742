#!lua flags=allow-oom
-- line_leave: a visitor gives up a place in the line, or a pass with its holds.
-- version 3 | stage 1 | writes | O(seats held)
--
-- KEYS 1 meta       hash
-- KEYS 2 line       bitmap  places that wait
-- KEYS 3 back       bitmap  places of the gap that may not return (again)
-- KEYS 4 passes     zset    place by deadline, ms
-- KEYS 5 limits     hash    place: latest moment its pass can be stretched to
-- KEYS 6 seats      bytes   a, h or s for each seat
-- KEYS 7 owners     hash    seat: place that holds or bought it
-- KEYS 8 hold_ends  zset    seat by deadline, ms
-- KEYS 9 held       hash    place: the seats it holds
-- KEYS 10 people    hash    place: the person who uses it
-- ARGV 1 place      int
--
-- REPLY LEFT      given up now
-- REPLY GONE      there was nothing to give up
-- REPLY UNREADY   the event is not here, or only a part of it
--
-- KEEPS a seat is in hold_ends exactly when its byte says held

local META, LINE, BACK, PASSES, LIMITS, SEATS, OWNERS, HOLD_ENDS, HELD, PEOPLE = unpack(KEYS)
local place = tonumber(ARGV[1])
local last_now, skew, waiting, base, next_place, head, gap_from, gap_to = unpack(redis.call('HMGET', META,
  'now', 'skew', 'waiting', 'base', 'next', 'head', 'gap_from', 'gap_to'))

-- shared: readiness
-- An event is ready if it knows how many people wait and, if anyone does, has a line.
waiting = tonumber(waiting)
if not waiting or (waiting > 0 and redis.call('EXISTS', LINE) == 0) then return { 'UNREADY' } end

-- shared: clock
-- The event's time never goes back: if the clock of Redis steps back, `skew` makes up for it.
local seconds, micros = unpack(redis.call('TIME'))
local clock = seconds * 1000 + math.floor(micros / 1000)
local now = math.max(clock + skew, tonumber(last_now))

base, next_place, head = tonumber(base), tonumber(next_place), tonumber(head)
gap_from, gap_to = tonumber(gap_from), tonumber(gap_to)

-- shared: leave the line
-- Takes a place out of the line. Returns whether it was waiting there. The caller stores `waiting` and `head`.
local function leave_line(place)
  local at = place - base
  if at < 0 or place >= next_place or redis.call('GETBIT', LINE, at) == 0 then return false end
  redis.call('SETBIT', LINE, at, 0)
  waiting = waiting - 1
  if waiting == 0 then
    head = next_place
  elseif place == head then
    head = base + redis.call('BITPOS', LINE, 1, math.floor(at / 8))
  end
  return true
end

-- shared: leave the gap
-- Bars a place of the gap from returning. Returns whether it still could.
local function leave_gap(place)
  local at = place - base
  return at >= 0 and place >= gap_from and place < gap_to and redis.call('SETBIT', BACK, at, 1) == 0
end

-- shared: free a seat
-- Makes a held seat available. The caller takes it off the list of its holder.
local function free_seat(seat)
  redis.call('SETRANGE', SEATS, seat - 1, 'a')
  redis.call('HDEL', OWNERS, seat)
  redis.call('ZREM', HOLD_ENDS, seat)
end

local gone = true

if leave_line(place) then
  redis.call('HSET', META, 'waiting', waiting, 'head', head)
  redis.call('HINCRBY', META, 'line_version', 1)
  gone = false
end

-- Leaving is final, also for a place that a restore lost and that is not back yet.
if leave_gap(place) then
  redis.call('HINCRBY', META, 'line_version', 1)
  gone = false
end

if redis.call('ZREM', PASSES, place) == 1 then
  redis.call('HDEL', LIMITS, place)
  for seat in string.gmatch(redis.call('HGET', HELD, place) or '', '%d+') do free_seat(seat) end
  if redis.call('HDEL', HELD, place) == 1 then redis.call('HINCRBY', META, 'seats_version', 1) end
  redis.call('HINCRBY', META, 'passes_version', 1)
  gone = false
end

if gone then return { 'GONE' } end
redis.call('HDEL', PEOPLE, place)
redis.call('HINCRBY', META, 'left', 1)
redis.call('HSET', META, 'now', now, 'skew', now - clock)
return { 'LEFT' }
