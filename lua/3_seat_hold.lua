#!lua
-- seat_hold: lend free seats to one visitor inside, all of them or none.
-- version 3 | stage 3 | writes | O(seats asked)
--
-- KEYS 1 meta       hash
-- KEYS 2 line       bitmap  places that wait
-- KEYS 3 policy     hash
-- KEYS 4 passes     zset    place by deadline, ms
-- KEYS 5 limits     hash    place: latest moment its pass can be stretched to
-- KEYS 6 seats      bytes   a, h or s for each seat
-- KEYS 7 owners     hash    seat: place that holds or bought it
-- KEYS 8 hold_ends  zset    seat by deadline, ms
-- KEYS 9 held       hash    place: the seats it holds
-- KEYS 10 people    hash    place: the person who uses it
-- ARGV 1 place      int
-- ARGV 2 at_least   int     ms the hold must last from now: 0 to look around, more to pay
-- ARGV 3 person     text    who asks; -: nobody who signed in
-- ARGV 4 seat       int …
--
-- REPLY HELD deadline now         yours now, or already was; the earliest deadline of the seats asked for
-- REPLY YOURS                     this place bought them all already
-- REPLY TAKEN seat state …        others hold or bought some: each such seat and its state
-- REPLY ANOTHER                   another person uses this place: the first one who held with it
-- REPLY NO_PASS                   not let in, or time is over
-- REPLY NO_SEAT seat              there is no such seat
-- REPLY TOO_MANY most             more than one pass may hold
-- REPLY UNREADY                   the event is not here, or only a part of it
--
-- KEEPS a seat is in hold_ends exactly when its byte says held; a pass lasts as long as its holds

local META, LINE, POLICY, PASSES, LIMITS, SEATS, OWNERS, HOLD_ENDS, HELD, PEOPLE = unpack(KEYS)
local place, at_least, person = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local last_now, skew, waiting, seats_total, seats_version, passes_version = unpack(redis.call('HMGET', META,
  'now', 'skew', 'waiting', 'seats', 'seats_version', 'passes_version'))

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
local asked, seen = {}, {}
for i = 4, #ARGV do
  local seat = tonumber(ARGV[i])
  if seat < 1 or seat > seats_total then return { 'NO_SEAT', seat } end
  if not seen[seat] then asked[#asked + 1] = seat end
  seen[seat] = true
end

-- A seat whose hold is overdue is as good as free.
local taken, free, mine, overdue_of = { 'TAKEN' }, {}, {}, {}
local bought = 0
for _, seat in ipairs(asked) do
  local state = redis.call('GETRANGE', SEATS, seat - 1, seat - 1)
  if state == 'a' then
    free[#free + 1] = seat
  else
    local owner = redis.call('HGET', OWNERS, seat)
    if state == 's' then
      if owner == place then
        bought = bought + 1
      else
        taken[#taken + 1] = seat
        taken[#taken + 1] = 'sold'
      end
    else
      local deadline = tonumber(redis.call('ZSCORE', HOLD_ENDS, seat))
      if deadline <= now then
        free[#free + 1] = seat
        overdue_of[seat] = owner
      elseif owner == place then
        mine[seat] = deadline
      else
        taken[#taken + 1] = seat
        taken[#taken + 1] = 'held'
      end
    end
  end
end
if bought == #asked then return { 'YOURS' } end

local used_by = redis.call('HGET', PEOPLE, place)
if used_by and used_by ~= person then return { 'ANOTHER' } end

local pass_ends = tonumber(redis.call('ZSCORE', PASSES, place))
if not pass_ends or pass_ends <= now then return { 'NO_PASS' } end
if #taken > 1 then return taken end

local hold_ttl_ms, seats_per_pass = unpack(redis.call('HMGET', POLICY, 'hold_ttl_ms', 'seats_per_pass'))
seats_per_pass = tonumber(seats_per_pass)
local listed, lent = {}, 0
for seat in string.gmatch(redis.call('HGET', HELD, place) or '', '%d+') do
  seat = tonumber(seat)
  if not overdue_of[seat] then
    listed[#listed + 1] = seat
    if tonumber(redis.call('ZSCORE', HOLD_ENDS, seat)) > now then lent = lent + 1 end
  end
end
if #free > 0 and lent + #free > seats_per_pass then return { 'TOO_MANY', seats_per_pass } end

-- A hold ends at the pass's limit at the latest. Only a payment may go beyond it, by `at_least`.
local limit = tonumber(redis.call('HGET', LIMITS, place))
local sure = math.min(now, limit) + at_least
local new_deadline = math.max(math.min(now + hold_ttl_ms, limit), sure)
-- A payment may have stretched the pass beyond its limit. That is no time for one more seat.
if #free > 0 and new_deadline <= now then return { 'NO_PASS' } end

-- Nothing is refused from here on.
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

local earliest, latest, changed = math.huge, pass_ends, false
local function lend(seat, deadline, before)
  if deadline ~= before then
    redis.call('ZADD', HOLD_ENDS, deadline, seat)
    changed = true
  end
  earliest, latest = math.min(earliest, deadline), math.max(latest, deadline)
end

for seat, owner in pairs(overdue_of) do
  if owner ~= place then remove_from_list(owner, { [tostring(seat)] = true }) end
end
for _, seat in ipairs(free) do
  redis.call('SETRANGE', SEATS, seat - 1, 'h')
  redis.call('HSET', OWNERS, seat, place)
  listed[#listed + 1] = seat
  lend(seat, new_deadline)
end
for seat, deadline in pairs(mine) do lend(seat, math.max(deadline, sure), deadline) end
if #free > 0 then redis.call('HSET', HELD, place, table.concat(listed, ' ')) end
if person ~= '-' and not used_by then redis.call('HSET', PEOPLE, place, person) end
if changed then seats_version = seats_version + 1 end
if latest > pass_ends then
  redis.call('ZADD', PASSES, latest, place)
  passes_version = passes_version + 1
end
redis.call('HSET', META, 'seats_version', seats_version, 'passes_version', passes_version, 'now', now,
  'skew', now - clock)
return { 'HELD', earliest, now }
