#!lua flags=allow-oom
-- seat_expire: make seats with overdue holds available again, a bounded number a call.
-- version 2 | stage 3 | writes | O(most)
--
-- KEYS 1 meta       hash
-- KEYS 2 line       bitmap  places that wait
-- KEYS 3 seats      bytes   a, h or s for each seat
-- KEYS 4 owners     hash    seat: place that holds or bought it
-- KEYS 5 hold_ends  zset    seat by deadline, ms
-- KEYS 6 held       hash    place: the seats it holds
-- ARGV 1 most       int     seats to free in this call
--
-- REPLY EXPIRED n   n seats were freed; if n is `most`, there may be more
-- REPLY UNREADY     the event is not here, or only a part of it
--
-- KEEPS a seat is in hold_ends exactly when its byte says held

local META, LINE, SEATS, OWNERS, HOLD_ENDS, HELD = unpack(KEYS)
local most = ARGV[1]
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

-- shared: list of held seats
-- Takes seats off the list of the place that holds them. `gone` is a set of seat numbers, as text.
local function remove_from_list(place, gone)
  local kept = {}
  for seat in string.gmatch(redis.call('HGET', HELD, place) or '', '%d+') do
    if not gone[seat] then kept[#kept + 1] = seat end
  end
  if #kept > 0 then
    redis.call('HSET', HELD, place, table.concat(kept, ' '))
  else
    redis.call('HDEL', HELD, place)
  end
end

-- shared: free a seat
-- Makes a held seat available. The caller takes it off the list of its holder.
local function free_seat(seat)
  redis.call('SETRANGE', SEATS, seat - 1, 'a')
  redis.call('HDEL', OWNERS, seat)
  redis.call('ZREM', HOLD_ENDS, seat)
end

local overdue = redis.call('ZRANGEBYSCORE', HOLD_ENDS, '-inf', now, 'LIMIT', 0, most)
for _, seat in ipairs(overdue) do
  remove_from_list(redis.call('HGET', OWNERS, seat), { [seat] = true })
  free_seat(seat)
end
if #overdue > 0 then
  redis.call('HINCRBY', META, 'seats_version', 1)
  redis.call('HSET', META, 'now', now, 'skew', now - clock)
end
return { 'EXPIRED', #overdue }
