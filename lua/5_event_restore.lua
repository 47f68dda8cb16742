#!lua
-- event_restore: build an event's keys, only where they are missing.
-- version 6 | stage 5 | writes | O(everything of the event)
--
-- Deadlines come as the time that was left, so nobody loses time to an outage.
--
-- KEYS 1 meta        hash
-- KEYS 2 line        bitmap  places that wait
-- KEYS 3 policy      hash
-- KEYS 4 back        bitmap  places of the gap that may not return (again)
-- KEYS 5 passes      zset    place by deadline, ms
-- KEYS 6 limits      hash    place: latest moment its pass can be stretched to
-- KEYS 7 seats       bytes   a, h or s for each seat
-- KEYS 8 owners      hash    seat: place that holds or bought it
-- KEYS 9 versions    hash    seat: version of its last sale or cancel
-- KEYS 10 hold_ends  zset    seat by deadline, ms
-- KEYS 11 held       hash    place: the seats it holds
-- KEYS 12 tmp        bitmap
-- KEYS 13 pulse:0    bitmap  places heard from, slice 0
-- KEYS 14 pulse:1    bitmap
-- KEYS 15 pulse:2    bitmap
-- KEYS 16 pulse:3    bitmap
-- KEYS 17 pulse:4    bitmap
-- KEYS 18 people     hash    place: the person who uses it
-- ARGV 1 facts       json    fields of meta, and gap_wait and tick, ms
-- ARGV 2 policy      json    fields of policy, and slow_left, ms
-- ARGV 3 line        bytes   bitmap from facts.base on
-- ARGV 4 back        bytes   bitmap from facts.base on
-- ARGV 5 passes      json    [place, ms left, ms left to its limit] …
-- ARGV 6 holds       json    [seat, place, ms left] …
-- ARGV 7 changes     json    [seat, version, place] …, the last one of each seat; place -1: taken back
--
-- REPLY RESTORED   built
-- REPLY PRESENT    it was there, nothing was changed
--
-- KEEPS everyone in the line counts as present, or the first to poll would overtake

local META, LINE, POLICY, BACK, PASSES, LIMITS, SEATS, OWNERS, VERSIONS, HOLD_ENDS, HELD = unpack(KEYS)
local PULSES = { unpack(KEYS, 13, 17) }
local PEOPLE = unpack(KEYS, 18)
local still_waiting = tonumber(redis.call('HGET', META, 'waiting'))
if still_waiting and (still_waiting == 0 or redis.call('EXISTS', LINE) == 1) then return { 'PRESENT' } end

local facts, policy, line, back = cjson.decode(ARGV[1]), cjson.decode(ARGV[2]), ARGV[3], ARGV[4]
local passes, holds, changes = cjson.decode(ARGV[5]), cjson.decode(ARGV[6]), cjson.decode(ARGV[7])
local skew, last_now = 0, facts.tick

-- shared: clock
-- The event's time never goes back: if the clock of Redis steps back, `skew` makes up for it.
local seconds, micros = unpack(redis.call('TIME'))
local clock = seconds * 1000 + math.floor(micros / 1000)
local now = math.max(clock + skew, tonumber(last_now))

-- What is still known of the people inside stays.
local people = redis.call('HGETALL', PEOPLE)
redis.call('DEL', unpack(KEYS))

local waiting, head, slice = 0, facts.next, 0
if line ~= '' then
  redis.call('SET', LINE, line)
  waiting = redis.call('BITCOUNT', LINE)
  if waiting > 0 then
    head = facts.base + redis.call('BITPOS', LINE, 1)
    redis.call('SET', PULSES[slice + 1], line)
  end
end
if back ~= '' then redis.call('SET', BACK, back) end

redis.call('SET', SEATS, string.rep('a', facts.seats))
local sold = 0
for _, change in ipairs(changes) do
  local seat, version, place = unpack(change)
  redis.call('HSET', VERSIONS, seat, version)
  if place >= 0 then
    redis.call('SETRANGE', SEATS, seat - 1, 's')
    redis.call('HSET', OWNERS, seat, place)
    sold = sold + 1
  end
end
for _, pass in ipairs(passes) do
  local place, left, limit_left = unpack(pass)
  redis.call('ZADD', PASSES, now + left, place)
  redis.call('HSET', LIMITS, place, now + limit_left)
end
for i = 1, #people, 2 do
  local place, person = people[i], people[i + 1]
  if redis.call('ZSCORE', PASSES, place) then redis.call('HSET', PEOPLE, place, person) end
end
for _, hold in ipairs(holds) do
  local seat, place, left = unpack(hold)
  redis.call('SETRANGE', SEATS, seat - 1, 'h')
  redis.call('HSET', OWNERS, seat, place)
  redis.call('ZADD', HOLD_ENDS, now + left, seat)
  local listed = redis.call('HGET', HELD, place)
  redis.call('HSET', HELD, place, listed and listed .. ' ' .. seat or seat)
end

local slow_left = policy.slow_left
policy.slow_left = nil
for field, value in pairs(policy) do redis.call('HSET', POLICY, field, value) end
redis.call('HSET', POLICY, 'slow_until', now + slow_left)
for _, field in ipairs({ 'base', 'next', 'end', 'block', 'fetch', 'seats', 'state', 'reason', 'gap_from', 'gap_to',
  'entered', 'admitted', 'swept', 'left', 'returned', 'overdue', 'sweeps_skipped', 'restores', 'line_version',
  'passes_version', 'seats_version' }) do
  redis.call('HSET', META, field, facts[field])
end

-- shared: life
-- Redis takes a new replication id when it restarts and when a replica is promoted.
local life = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')

redis.call('HSET', META, 'life', life, 'waiting', waiting, 'head', head, 'sold', sold, 'slice', slice, 'turned', now,
  'suspect', 0, 'admitted_at', 0, 'gap_opens', now + facts.gap_wait, 'gap_turns', 0, 'now', now, 'skew', now - clock)
return { 'RESTORED' }
