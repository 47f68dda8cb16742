#!lua
-- seat_hold: lend free seats to one visitor inside, all of them or none.
-- version 1 | stage 3 | writes | O(seats asked)
--
-- KEYS 1 meta       hash
-- KEYS 2 line       bitmap  who waits
-- KEYS 3 policy     hash
-- KEYS 4 passes     zset    place by deadline, ms
-- KEYS 5 limits     hash    place: latest moment its pass can be stretched to
-- KEYS 6 seats      bytes   a, h or s for each seat
-- KEYS 7 owners     hash    seat: place that holds or bought it
-- KEYS 8 hold_ends  zset    seat by deadline, ms
-- KEYS 9 held       hash    place: the seats it holds
-- ARGV 1 place      int
-- ARGV 2 at_least   int     ms the hold must last from now: 0 to look around, more to pay
-- ARGV 3 seat       int …
--
-- REPLY HELD deadline now         yours now, or already was; the earliest deadline of the seats asked for
-- REPLY YOURS                     bought by this place already
-- REPLY TAKEN seat state …        held by or sold to others: each such seat and its state
-- REPLY NO_PASS                   not let in, or time is over
-- REPLY NO_SEAT seat              there is no such seat
-- REPLY TOO_MANY most             more than one pass may hold
-- REPLY UNREADY                   the event is not here, or only a part of it
--
-- KEEPS a seat is in hold_ends exactly when its byte says held; a pass lasts as long as its holds

local place, at_least = ARGV[1], tonumber(ARGV[2])
local meta = redis.call('HMGET', KEYS[1], 'now', 'skew', 'waiting', 'seats', 'seats_version', 'passes_version')
local waiting = tonumber(meta[3])
if not waiting or (waiting > 0 and redis.call('EXISTS', KEYS[2]) == 0) then return { 'UNREADY' } end

local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = math.max(clock + meta[2], tonumber(meta[1]))

local seats, asked = {}, {}
for i = 3, #ARGV do
  local seat = tonumber(ARGV[i])
  if seat < 1 or seat > tonumber(meta[4]) then return { 'NO_SEAT', seat } end
  if not asked[seat] then seats[#seats + 1] = seat end
  asked[seat] = true
end

local taken, free, mine, overdue_of = { 'TAKEN' }, {}, {}, {}
local bought = 0
for _, seat in ipairs(seats) do
  local state = redis.call('GETRANGE', KEYS[6], seat - 1, seat - 1)
  if state == 'a' then
    free[#free + 1] = seat
  else
    local owner = redis.call('HGET', KEYS[7], seat)
    if state == 's' then
      if owner == place then
        bought = bought + 1
      else
        taken[#taken + 1] = seat
        taken[#taken + 1] = 'sold'
      end
    else
      local deadline = tonumber(redis.call('ZSCORE', KEYS[8], seat))
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
if bought == #seats then return { 'YOURS' } end

local pass = tonumber(redis.call('ZSCORE', KEYS[4], place))
if not pass or pass <= now then return { 'NO_PASS' } end
if #taken > 1 then return taken end

local policy = redis.call('HMGET', KEYS[3], 'hold_ttl_ms', 'seats_per_pass')
local others, lent = {}, 0
for seat in string.gmatch(redis.call('HGET', KEYS[9], place) or '', '%d+') do
  seat = tonumber(seat)
  if not overdue_of[seat] then
    others[#others + 1] = seat
    if tonumber(redis.call('ZSCORE', KEYS[8], seat)) > now then lent = lent + 1 end
  end
end
if #free > 0 and lent + #free > tonumber(policy[2]) then return { 'TOO_MANY', tonumber(policy[2]) } end

local limit = tonumber(redis.call('HGET', KEYS[5], place))
local sure = math.min(now + at_least, limit + at_least)
local until_when = math.max(math.min(now + policy[1], limit), sure)
-- A payment may have stretched the pass beyond its limit: that is no time for one more seat.
if #free > 0 and until_when <= now then return { 'NO_PASS' } end

-- Nothing is refused from here on.
local earliest, latest, changed = math.huge, pass, false
local function lend(seat, deadline, before)
  if deadline ~= before then
    redis.call('ZADD', KEYS[8], deadline, seat)
    changed = true
  end
  earliest, latest = math.min(earliest, deadline), math.max(latest, deadline)
end

for seat, owner in pairs(overdue_of) do
  if owner ~= place then
    local kept = {}
    for other in string.gmatch(redis.call('HGET', KEYS[9], owner) or '', '%d+') do
      if tonumber(other) ~= seat then kept[#kept + 1] = other end
    end
    if #kept > 0 then
      redis.call('HSET', KEYS[9], owner, table.concat(kept, ' '))
    else
      redis.call('HDEL', KEYS[9], owner)
    end
  end
end
for _, seat in ipairs(free) do
  redis.call('SETRANGE', KEYS[6], seat - 1, 'h')
  redis.call('HSET', KEYS[7], seat, place)
  others[#others + 1] = seat
  lend(seat, until_when)
end
for seat, deadline in pairs(mine) do lend(seat, math.max(deadline, sure), deadline) end
if #free > 0 then redis.call('HSET', KEYS[9], place, table.concat(others, ' ')) end
local seats_version, passes_version = meta[5], meta[6]
if changed then seats_version = seats_version + 1 end
if latest > pass then
  redis.call('ZADD', KEYS[4], latest, place)
  passes_version = passes_version + 1
end
redis.call('HSET', KEYS[1], 'seats_version', seats_version, 'passes_version', passes_version, 'now', now,
  'skew', now - clock)
return { 'HELD', earliest, now }
