#!lua
-- order_accept: take an order that is written later, and stop the clock of its place until then.
-- version 3 | stage 4 | writes | O(seats held)
--
-- Nothing is held for the order: who comes first is decided when it is written.
--
-- KEYS 1 meta       hash
-- KEYS 2 line       bitmap  places that wait
-- KEYS 3 passes     zset    place by deadline, ms
-- KEYS 4 limits     hash    place: latest moment its pass can be stretched to
-- KEYS 5 hold_ends  zset    seat by deadline, ms
-- KEYS 6 held       hash    place: the seats it holds
-- KEYS 7 requests   stream  orders to write, as they came
-- KEYS 8 pending    zset    order by arrival
-- KEYS 9 frozen     hash    place: its order, and the deadlines it had
-- KEYS 10 latest    zset    place by the latest moment that all its orders together can move its limit to, ms
-- KEYS 11 people    hash    place: the person who uses it
-- ARGV 1 place      int
-- ARGV 2 order      text
-- ARGV 3 seats      text    their numbers, ascending, with commas
-- ARGV 4 buyer      text    who pays; -: nobody who signed in
-- ARGV 5 freeze_ms  int     how long the clock of the place stands still at most, for all its orders together
-- ARGV 6 most       int     orders that may wait
-- ARGV 7 broker     word    redis: the order goes to the stream; other: somewhere else
--
-- REPLY ACCEPTED ahead   taken; this many are before it
-- REPLY KNOWN order      this place and buyer asked for the same seats already
-- REPLY OTHER order      this place has an order for other seats, or of another buyer
-- REPLY ANOTHER          another person uses this place: the first one who held or bought with it
-- REPLY NO_PASS          not let in, or time is over
-- REPLY FULL             too many wait
-- REPLY UNREADY          the event is not here, or only a part of it
--
-- KEEPS a place has one order at a time; a pass lasts as long as its holds

local META, LINE, PASSES, LIMITS, HOLD_ENDS, HELD, REQUESTS, PENDING, FROZEN, LATEST, PEOPLE = unpack(KEYS)
local place, order, seats, buyer = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local freeze_ms, most, broker = ARGV[5], tonumber(ARGV[6]), ARGV[7]
local last_now, skew, waiting = unpack(redis.call('HMGET', META, 'now', 'skew', 'waiting'))

-- shared: readiness
-- An event is ready if it knows how many people wait and, if anyone does, has a line.
waiting = tonumber(waiting)
if not waiting or (waiting > 0 and redis.call('EXISTS', LINE) == 0) then return { 'UNREADY' } end

-- shared: clock
-- The event's time never goes back: if the clock of Redis steps back, `skew` makes up for it.
local seconds, micros = unpack(redis.call('TIME'))
local clock = seconds * 1000 + math.floor(micros / 1000)
local now = math.max(clock + skew, tonumber(last_now))

local known = redis.call('HGET', FROZEN, place)
if known then
  local known_order, known_seats, known_buyer = string.match(known, '^(%S+) (%S+) (%S+)')
  if known_seats == seats and known_buyer == buyer then return { 'KNOWN', known_order } end
  return { 'OTHER', known_order }
end
local pass_ends = tonumber(redis.call('ZSCORE', PASSES, place))
if not pass_ends or pass_ends <= now then return { 'NO_PASS' } end
local used_by = redis.call('HGET', PEOPLE, place)
if used_by and used_by ~= buyer then return { 'ANOTHER' } end
local ahead = redis.call('ZCARD', PENDING)
if ahead >= most then return { 'FULL' } end

-- Nothing is refused from here on.
local arrived, entry = now * 1000, '-'
if broker == 'redis' then
  entry = redis.call('XADD', REQUESTS, '*', 'order', order, 'place', place, 'seats', seats, 'buyer', buyer)
  local ms, number = string.match(entry, '^(%d+)-(%d+)$')
  arrived = ms * 1000 + number
end
redis.call('ZADD', PENDING, arrived, order)

-- By then, the passes of these places are over.
redis.call('ZREMRANGEBYSCORE', LATEST, '-inf', now)
local limit = tonumber(redis.call('HGET', LIMITS, place)) or pass_ends
redis.call('ZADD', LATEST, 'NX', limit + freeze_ms, place)
local until_then = math.min(now + freeze_ms, tonumber(redis.call('ZSCORE', LATEST, place)))
local record = { order, seats, buyer, entry, now, pass_ends, limit }
for seat in string.gmatch(redis.call('HGET', HELD, place) or '', '%d+') do
  local deadline = tonumber(redis.call('ZSCORE', HOLD_ENDS, seat))
  if deadline > now then
    record[#record + 1] = seat .. ':' .. deadline
    redis.call('ZADD', HOLD_ENDS, 'GT', until_then, seat)
  end
end
redis.call('HSET', FROZEN, place, table.concat(record, ' '))
if buyer ~= '-' and not used_by then redis.call('HSET', PEOPLE, place, buyer) end
redis.call('ZADD', PASSES, 'GT', until_then, place)
redis.call('HSET', LIMITS, place, math.max(limit, until_then))
if redis.call('HEXISTS', HELD, place) == 1 then redis.call('HINCRBY', META, 'seats_version', 1) end
redis.call('HINCRBY', META, 'passes_version', 1)
redis.call('HSET', META, 'now', now, 'skew', now - clock)
return { 'ACCEPTED', ahead }
