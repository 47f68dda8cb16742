#!lua
-- order_take: whoever writes the orders of this event gets the next ones. There is one writer at a time.
-- version 2 | stage 4 | writes | O(orders taken)
--
-- An order stays in the stream until it is finished. If its writer dies, the next one gets it again. A writer that finds
-- nothing to do is no longer the writer: the server that accepts the next order begins at once.
--
-- KEYS 1 meta       hash
-- KEYS 2 line       bitmap  places that wait
-- KEYS 3 requests   stream  orders to write, as they came
-- KEYS 4 working    set     orders that are being written
-- ARGV 1 writer     text    who asks
-- ARGV 2 lease_ms   int     how long nobody else may write, unless the writer asks again
-- ARGV 3 most       int     orders to get; 0: the writer stops
--
-- REPLY TAKEN entry order place seats buyer …   the oldest ones, five words each
-- REPLY NONE                                    there are none
-- REPLY BUSY left_ms                            somebody else writes, for this long at least
-- REPLY UNREADY                                 the event is not here, or only a part of it
--
-- KEEPS orders are taken in the order they came

local META, LINE, REQUESTS, WORKING = unpack(KEYS)
local writer, lease_ms, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local last_now, skew, waiting, last_writer, writer_until = unpack(redis.call('HMGET', META,
  'now', 'skew', 'waiting', 'writer', 'writer_until'))

-- shared: readiness
-- An event is ready if it knows how many people wait and, if anyone does, has a line.
waiting = tonumber(waiting)
if not waiting or (waiting > 0 and redis.call('EXISTS', LINE) == 0) then return { 'UNREADY' } end

-- shared: clock
-- The event's time never goes back: if the clock of Redis steps back, `skew` makes up for it.
local seconds, micros = unpack(redis.call('TIME'))
local clock = seconds * 1000 + math.floor(micros / 1000)
local now = math.max(clock + skew, tonumber(last_now))

local left = (tonumber(writer_until) or 0) - now
if last_writer and last_writer ~= writer and left > 0 then return { 'BUSY', left } end
local entries = most > 0 and redis.call('XRANGE', REQUESTS, '-', '+', 'COUNT', most) or {}
if #entries == 0 then
  if last_writer == writer then redis.call('HDEL', META, 'writer', 'writer_until') end
  return { 'NONE' }
end

local taken, orders = { 'TAKEN' }, {}
for _, found in ipairs(entries) do
  local entry, fields = unpack(found)
  local _, order, _, place, _, seats, _, buyer = unpack(fields)
  for _, word in ipairs({ entry, order, place, seats, buyer }) do taken[#taken + 1] = word end
  orders[#orders + 1] = order
end
redis.call('SADD', WORKING, unpack(orders))
redis.call('HSET', META, 'writer', writer, 'writer_until', now + lease_ms, 'now', now, 'skew', now - clock)
redis.call('HINCRBY', META, 'orders_version', 1)
return taken
