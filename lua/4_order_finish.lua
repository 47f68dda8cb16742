#!lua flags=allow-oom
-- order_finish: orders were written, or refused. The clocks of their places go on.
-- version 4 | stage 4 | writes | O(orders × seats held)
--
-- Comes after PostgreSQL knows. To finish an order again does nothing.
--
-- KEYS 1 meta        hash
-- KEYS 2 line        bitmap  places that wait
-- KEYS 3 passes      zset    place by deadline, ms
-- KEYS 4 limits      hash    place: latest moment its pass can be stretched to
-- KEYS 5 hold_ends   zset    seat by deadline, ms
-- KEYS 6 held        hash    place: the seats it holds
-- KEYS 7 requests    stream  orders to write, as they came
-- KEYS 8 pending     zset    order by arrival
-- KEYS 9 working     set     orders that are being written
-- KEYS 10 frozen     hash    place: its order, and the deadlines it had
-- KEYS 11 latest     zset    place by the latest moment that all its orders together can move its limit to, ms
-- ARGV 1 order       order place paid|failed entry …   four words each; the entry in the stream, or - if unknown
--
-- REPLY FINISHED n   n orders were pending until now
-- REPLY UNREADY      the event is not here, or only a part of it
--
-- KEEPS a pass lasts as long as its holds

local META, LINE, PASSES, LIMITS, HOLD_ENDS, HELD, REQUESTS, PENDING, WORKING, FROZEN, LATEST = unpack(KEYS)
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

-- Settling ends the pass and the holds of a buyer. It may take some seconds, in which nobody else gets the seats.
local SETTLED_MS = 10000

-- Gives a place the time back that it had when it asked, and at least until `sure`. A seat that it got since keeps its
-- deadline, unless that is past the longest stay of the place and some seconds: an order must not make a stay longer.
-- Neither must many orders: when they have used up the time for which a clock may stand still, it goes on.
local thawed = false
local function thaw(place, stood_still, pass_ends, limit, deadlines, sure)
  thawed = true
  local pass = tonumber(redis.call('ZSCORE', PASSES, place))
  if not pass or pass <= now then return end
  local most = tonumber(redis.call('ZSCORE', LATEST, place))
  if most then stood_still = math.min(stood_still, math.max(most - limit, 0)) end
  local latest = math.max(pass_ends + stood_still, sure)
  for seat in string.gmatch(redis.call('HGET', HELD, place) or '', '%d+') do
    local before = tonumber(string.match(deadlines, ' ' .. seat .. ':(%d+)'))
    local deadline = before and before + stood_still
      or math.min(tonumber(redis.call('ZSCORE', HOLD_ENDS, seat)), limit + stood_still + SETTLED_MS)
    deadline = math.max(deadline, sure)
    redis.call('ZADD', HOLD_ENDS, deadline, seat)
    latest = math.max(latest, deadline)
  end
  redis.call('ZADD', PASSES, latest, place)
  redis.call('HSET', LIMITS, place, limit + stood_still)
end

local finished = 0
for i = 1, #ARGV, 4 do
  local order, place, outcome, entry = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local record = redis.call('HGET', FROZEN, place) or ''
  local of, known_entry, at, pass_ends, limit, deadlines =
    string.match(record, '^(%S+) %S+ %S+ (%S+) (%d+) (%d+) (%d+)(.*)$')
  if of == order then
    redis.call('HDEL', FROZEN, place)
    local sure = outcome == 'paid' and now + SETTLED_MS or now
    thaw(place, now - at, pass_ends, limit, deadlines, sure)
    if entry == '-' then entry = known_entry end
  end
  if entry ~= '-' then redis.call('XDEL', REQUESTS, entry) end
  redis.call('SREM', WORKING, order)
  finished = finished + redis.call('ZREM', PENDING, order)
end
redis.call('HINCRBY', META, 'orders_version', 1)
if thawed then
  redis.call('HINCRBY', META, 'seats_version', 1)
  redis.call('HINCRBY', META, 'passes_version', 1)
end
redis.call('HSET', META, 'now', now, 'skew', now - clock)
return { 'FINISHED', finished }
