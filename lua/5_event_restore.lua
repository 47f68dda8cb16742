#!lua
-- event_restore: build an event's keys, only where they are missing.
-- version 2 | stage 5 | writes | O(everything of the event)
--
-- Times come as what was left of them, so that an outage costs nobody anything.
--
-- KEYS 1 meta        hash
-- KEYS 2 line        bitmap  who waits
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
-- KEYS 13 pulse:0    bitmap  who was heard from, slice 0
-- KEYS 14 pulse:1    bitmap
-- KEYS 15 pulse:2    bitmap
-- KEYS 16 pulse:3    bitmap
-- KEYS 17 pulse:4    bitmap
-- ARGV 1 facts       json    fields of meta, and gap_wait and tick, ms
-- ARGV 2 policy      json    fields of policy
-- ARGV 3 line        bytes   bitmap from facts.base on
-- ARGV 4 back        bytes   bitmap from facts.base on
-- ARGV 5 passes      json    [place, ms left, ms left to its limit] …
-- ARGV 6 holds       json    [seat, place, ms left] …
-- ARGV 7 settled     json    [seat, version, place], place -1 for a seat taken back …
--
-- REPLY RESTORED   built
-- REPLY PRESENT    it was there, nothing was changed
--
-- KEEPS everyone in the line counts as present, or the first to poll would overtake

local here = redis.call('HGET', KEYS[1], 'waiting')
if here and (tonumber(here) == 0 or redis.call('EXISTS', KEYS[2]) == 1) then return { 'PRESENT' } end

local facts = cjson.decode(ARGV[1])
local passes, holds, settled = cjson.decode(ARGV[5]), cjson.decode(ARGV[6]), cjson.decode(ARGV[7])
local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = math.max(clock, facts.tick)

redis.call('DEL', unpack(KEYS))

local waiting, head = 0, facts.next
if ARGV[3] ~= '' then
  redis.call('SET', KEYS[2], ARGV[3])
  waiting = redis.call('BITCOUNT', KEYS[2])
  if waiting > 0 then
    head = facts.base + redis.call('BITPOS', KEYS[2], 1)
    redis.call('SET', KEYS[13], ARGV[3])
  end
end
if ARGV[4] ~= '' then redis.call('SET', KEYS[4], ARGV[4]) end

redis.call('SET', KEYS[7], string.rep('a', facts.seats))
local sold = 0
for _, message in ipairs(settled) do
  local seat, version, place = message[1], message[2], message[3]
  redis.call('HSET', KEYS[9], seat, version)
  if place >= 0 then
    redis.call('SETRANGE', KEYS[7], seat - 1, 's')
    redis.call('HSET', KEYS[8], seat, place)
    sold = sold + 1
  end
end
for _, pass in ipairs(passes) do
  redis.call('ZADD', KEYS[5], now + pass[2], pass[1])
  redis.call('HSET', KEYS[6], pass[1], now + pass[3])
end
for _, hold in ipairs(holds) do
  local seat, place, left = hold[1], hold[2], hold[3]
  redis.call('SETRANGE', KEYS[7], seat - 1, 'h')
  redis.call('HSET', KEYS[8], seat, place)
  redis.call('ZADD', KEYS[10], now + left, seat)
  local others = redis.call('HGET', KEYS[11], place)
  redis.call('HSET', KEYS[11], place, others and others .. ' ' .. seat or seat)
end

for field, value in pairs(cjson.decode(ARGV[2])) do redis.call('HSET', KEYS[3], field, value) end
for _, field in ipairs({ 'base', 'next', 'end', 'seats', 'state', 'reason', 'gap_from', 'gap_to', 'entered', 'admitted', 'swept',
  'left', 'returned', 'overdue', 'sweeps_skipped', 'restores', 'line_version', 'passes_version', 'seats_version' }) do
  redis.call('HSET', KEYS[1], field, facts[field])
end
redis.call('HSET', KEYS[1], 'life', string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)'),
  'waiting', waiting, 'head', head, 'sold', sold, 'slice', 0, 'turned', now, 'suspect', 0, 'admitted_at', 0,
  'gap_opens', now + facts.gap_wait, 'gap_turns', 0, 'now', now, 'skew', now - clock)
return { 'RESTORED' }
