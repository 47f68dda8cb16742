#!lua flags=allow-oom
-- ticket_settle: tell Redis what PostgreSQL sold or took back.
-- version 4 | stage 4 | writes | O(changes)
--
-- A change counts only if its version is greater than the seat's, so late and repeated changes do nothing. All seats
-- of an order come in one call: the first of them ends the buyer's other holds.
--
-- KEYS 1 meta        hash
-- KEYS 2 line        bitmap  places that wait
-- KEYS 3 back        bitmap  places of the gap that may not return (again)
-- KEYS 4 passes      zset    place by deadline, ms
-- KEYS 5 limits      hash    place: latest moment its pass can be stretched to
-- KEYS 6 seats       bytes   a, h or s for each seat
-- KEYS 7 owners      hash    seat: place that holds or bought it
-- KEYS 8 versions    hash    seat: version of its last sale or cancel
-- KEYS 9 hold_ends   zset    seat by deadline, ms
-- KEYS 10 held       hash    place: the seats it holds
-- KEYS 11 people     hash    place: the person who uses it
-- ARGV 1 change      seat version sold|available place …   four words each
--
-- REPLY SETTLED n unsold   n changes were new; `unsold` seats are unsold now
-- REPLY UNREADY            the event is not here, or only a part of it
--
-- KEEPS sold is the number of seats whose byte says sold; a buyer is neither waiting nor inside

local META, LINE, BACK, PASSES, LIMITS, SEATS, OWNERS, VERSIONS, HOLD_ENDS, HELD, PEOPLE = unpack(KEYS)
local last_now, skew, waiting, base, next_place, head, seats_total, sold, gap_from, gap_to = unpack(
  redis.call('HMGET', META,
    'now', 'skew', 'waiting', 'base', 'next', 'head', 'seats', 'sold', 'gap_from', 'gap_to'))

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
seats_total, sold = tonumber(seats_total), tonumber(sold)
local settled, line_moved, passes_moved = 0, false, false

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

-- One order a pass: after it the buyer has no pass, no other hold and no place.
local function end_visit(place)
  for seat in string.gmatch(redis.call('HGET', HELD, place) or '', '%d+') do free_seat(seat) end
  redis.call('HDEL', HELD, place)
  redis.call('HDEL', PEOPLE, place)
  if redis.call('ZREM', PASSES, place) == 1 then
    redis.call('HDEL', LIMITS, place)
    passes_moved = true
    return
  end
  -- Without a pass the place may wait in the line, or in the gap after a restore.
  if leave_line(place) then line_moved = true end
  if leave_gap(place) then line_moved = true end
end

for i = 1, #ARGV, 4 do
  local seat, version, state, place = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3]
  local known = tonumber(redis.call('HGET', VERSIONS, seat) or 0)
  if version > known and tonumber(seat) >= 1 and tonumber(seat) <= seats_total then
    local before = redis.call('GETRANGE', SEATS, seat - 1, seat - 1)
    if state == 'sold' then
      if before == 'h' then
        local owner = redis.call('HGET', OWNERS, seat)
        if owner ~= place then
          remove_from_list(owner, { [seat] = true })
          redis.call('ZREM', HOLD_ENDS, seat)
        end
      end
      if before ~= 's' then sold = sold + 1 end
      end_visit(tonumber(place))
      redis.call('SETRANGE', SEATS, seat - 1, 's')
      redis.call('HSET', OWNERS, seat, place)
    elseif before == 's' then
      sold = sold - 1
      redis.call('SETRANGE', SEATS, seat - 1, 'a')
      redis.call('HDEL', OWNERS, seat)
    elseif before == 'h' and redis.call('HGET', OWNERS, seat) == place then
      -- The cancel came before its sale. The place has had its order, so its visit is over.
      end_visit(tonumber(place))
    end
    redis.call('HSET', VERSIONS, seat, version)
    settled = settled + 1
  end
end

if settled > 0 then
  redis.call('HSET', META, 'sold', sold, 'waiting', waiting, 'head', head, 'now', now, 'skew', now - clock)
  redis.call('HINCRBY', META, 'seats_version', 1)
  if passes_moved then redis.call('HINCRBY', META, 'passes_version', 1) end
  if line_moved then redis.call('HINCRBY', META, 'line_version', 1) end
end
return { 'SETTLED', settled, seats_total - sold }
