#!lua
-- order_begin: orders that another broker kept are being written.
-- version 1 | stage 4 | writes | O(orders)
--
-- KEYS 1 meta     hash
-- KEYS 2 line     bitmap  places that wait
-- KEYS 3 pending  zset    order by arrival
-- KEYS 4 working  set     orders that are being written
-- ARGV 1 order    text …
--
-- REPLY BEGUN order …   these do not wait here: they are decided, or Redis lost them
-- REPLY UNREADY         the event is not here, or only a part of it
--
-- KEEPS orders that are being written are pending

local META, LINE, PENDING, WORKING = unpack(KEYS)
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

local begun = { 'BEGUN' }
for i = 1, #ARGV do
  local order = ARGV[i]
  if redis.call('ZSCORE', PENDING, order) then
    redis.call('SADD', WORKING, order)
  else
    begun[#begun + 1] = order
  end
end
redis.call('HINCRBY', META, 'orders_version', 1)
redis.call('HSET', META, 'now', now, 'skew', now - clock)
return begun
