#!lua flags=allow-oom
-- ticket_settle: tell Redis what PostgreSQL sold or took back.
-- version 2 | stage 4 | writes | O(messages)
--
-- A message counts only if its version is greater than the seat's, so late and doubled ones change nothing. Seats of one
-- order come in one call: the first of them ends the buyer's other holds.
--
-- KEYS 1 meta        hash
-- KEYS 2 line        bitmap  who waits
-- KEYS 3 back        bitmap  places of the gap that may not return (again)
-- KEYS 4 passes      zset    place by deadline, ms
-- KEYS 5 limits      hash    place: latest moment its pass can be stretched to
-- KEYS 6 seats       bytes   a, h or s for each seat
-- KEYS 7 owners      hash    seat: place that holds or bought it
-- KEYS 8 versions    hash    seat: version of its last sale or cancel
-- KEYS 9 hold_ends   zset    seat by deadline, ms
-- KEYS 10 held       hash    place: the seats it holds
-- ARGV 1 message     seat version sold|available place …   four words each
--
-- REPLY SETTLED n unsold   n messages were news; so many seats are unsold now
-- REPLY UNREADY            the event is not here, or only a part of it
--
-- KEEPS sold is the number of seats whose byte says sold; a buyer is neither waiting nor inside

local meta = redis.call('HMGET', KEYS[1], 'now', 'skew', 'waiting', 'base', 'next', 'head', 'seats', 'sold', 'gap_from',
  'gap_to')
local waiting = tonumber(meta[3])
if not waiting or (waiting > 0 and redis.call('EXISTS', KEYS[2]) == 0) then return { 'UNREADY' } end

local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = math.max(clock + meta[2], tonumber(meta[1]))

local base, next_place, head = tonumber(meta[4]), tonumber(meta[5]), tonumber(meta[6])
local sold, settled = tonumber(meta[8]), 0
local line_moved, passes_moved = false, false

-- Ends someone's hold on a seat; the caller sets the seat's byte and owner.
local function end_hold(seat, owner)
  local kept = {}
  for other in string.gmatch(redis.call('HGET', KEYS[10], owner) or '', '%d+') do
    if other ~= seat then kept[#kept + 1] = other end
  end
  if #kept > 0 then
    redis.call('HSET', KEYS[10], owner, table.concat(kept, ' '))
  else
    redis.call('HDEL', KEYS[10], owner)
  end
  redis.call('ZREM', KEYS[9], seat)
end

-- One order a pass: after it the buyer has no pass, no other hold and no place.
local function end_visit(place)
  for other in string.gmatch(redis.call('HGET', KEYS[10], place) or '', '%d+') do
    redis.call('SETRANGE', KEYS[6], other - 1, 'a')
    redis.call('HDEL', KEYS[7], other)
    redis.call('ZREM', KEYS[9], other)
  end
  redis.call('HDEL', KEYS[10], place)
  if redis.call('ZREM', KEYS[4], place) == 1 then
    redis.call('HDEL', KEYS[5], place)
    passes_moved = true
    return
  end
  -- Not inside: lost by a restore, and maybe back in the line.
  local at = place - base
  if at >= 0 and place < next_place and redis.call('GETBIT', KEYS[2], at) == 1 then
    redis.call('SETBIT', KEYS[2], at, 0)
    waiting = waiting - 1
    if waiting == 0 then
      head = next_place
    elseif place == head then
      head = base + redis.call('BITPOS', KEYS[2], 1, math.floor(at / 8))
    end
    line_moved = true
  end
  if at >= 0 and place >= tonumber(meta[9]) and place < tonumber(meta[10])
    and redis.call('SETBIT', KEYS[3], at, 1) == 0 then
    line_moved = true
  end
end

for i = 1, #ARGV, 4 do
  local seat, version, state, place = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3]
  local known = tonumber(redis.call('HGET', KEYS[8], seat) or 0)
  if version > known and tonumber(seat) >= 1 and tonumber(seat) <= tonumber(meta[7]) then
    local before = redis.call('GETRANGE', KEYS[6], seat - 1, seat - 1)
    if state == 'sold' then
      if before == 'h' then
        local owner = redis.call('HGET', KEYS[7], seat)
        if owner ~= place then end_hold(seat, owner) end
      end
      if before ~= 's' then sold = sold + 1 end
      end_visit(tonumber(place))
      redis.call('SETRANGE', KEYS[6], seat - 1, 's')
      redis.call('HSET', KEYS[7], seat, place)
    elseif before == 's' then
      sold = sold - 1
      redis.call('SETRANGE', KEYS[6], seat - 1, 'a')
      redis.call('HDEL', KEYS[7], seat)
    elseif before == 'h' and redis.call('HGET', KEYS[7], seat) == place then
      -- The cancel came before the news of its sale: that place has had its order.
      end_visit(tonumber(place))
    end
    redis.call('HSET', KEYS[8], seat, version)
    settled = settled + 1
  end
end

if settled > 0 then
  redis.call('HSET', KEYS[1], 'sold', sold, 'waiting', waiting, 'head', head, 'now', now, 'skew', now - clock)
  redis.call('HINCRBY', KEYS[1], 'seats_version', 1)
  if passes_moved then redis.call('HINCRBY', KEYS[1], 'passes_version', 1) end
  if line_moved then redis.call('HINCRBY', KEYS[1], 'line_version', 1) end
end
return { 'SETTLED', settled, meta[7] - sold }
