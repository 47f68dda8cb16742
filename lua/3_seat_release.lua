#!lua flags=allow-oom
-- seat_release: a visitor gives held seats back, all of them or none.
-- version 2 | stage 3 | writes | O(seats)
--
-- KEYS 1 meta       hash
-- KEYS 2 line       bitmap  places that wait
-- KEYS 3 seats      bytes   a, h or s for each seat
-- KEYS 4 owners     hash    seat: place that holds or bought it
-- KEYS 5 hold_ends  zset    seat by deadline, ms
-- KEYS 6 held       hash    place: the seats it holds
-- ARGV 1 place      int
-- ARGV 2 seat       int …
--
-- REPLY RELEASED n            n seats were given back; seats that were free already do not count
-- REPLY NOT_YOURS seat state  someone else holds it, or it is sold
-- REPLY NO_SEAT seat          there is no such seat
-- REPLY UNREADY               the event is not here, or only a part of it
--
-- KEEPS a seat is in hold_ends exactly when its byte says held

local META, LINE, SEATS, OWNERS, HOLD_ENDS, HELD = unpack(KEYS)
local place = ARGV[1]
local last_now, skew, waiting, seats_total = unpack(redis.call('HMGET', META, 'now', 'skew', 'waiting', 'seats'))

-- shared: readiness
-- An event is ready if it knows how many people wait and, if anyone does, has a line.
waiting = tonumber(waiting)
if not waiting or (waiting > 0 and redis.call('EXISTS', LINE) == 0) then return { 'UNREADY' } end

-- shared: clock
-- The event's time never goes back: if the clock of Redis steps back, `skew` makes up for it.
local seconds, micros = unpack(redis.call('TIME'))
local clock = seconds * 1000 + math.floor(micros / 1000)
local now = math.max(clock + skew, tonumber(last_now))

seats_total = tonumber(seats_total)
local giving, given = {}, 0
for i = 2, #ARGV do
  local seat = tonumber(ARGV[i])
  if seat < 1 or seat > seats_total then return { 'NO_SEAT', seat } end
  local state = redis.call('GETRANGE', SEATS, seat - 1, seat - 1)
  if state == 's' then return { 'NOT_YOURS', seat, 'sold' } end
  if state == 'h' then
    if redis.call('HGET', OWNERS, seat) ~= place then return { 'NOT_YOURS', seat, 'held' } end
    giving[tostring(seat)] = true
  end
end

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

for seat in pairs(giving) do
  free_seat(seat)
  given = given + 1
end
if given > 0 then
  remove_from_list(place, giving)
  redis.call('HINCRBY', META, 'seats_version', 1)
  redis.call('HSET', META, 'now', now, 'skew', now - clock)
end
return { 'RELEASED', given }
