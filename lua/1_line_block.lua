#!lua
-- line_block: store a fresh block of places, bound to this life of Redis.
-- version 4 | stage 1 | writes | O(1); O(line) in a new life
--
-- A new life begins when Redis restarts from a file or a replica is promoted. This Redis may then have missed the
-- last places that were given out. They become the gap: a visitor who proves a place in the gap gets it back.
--
-- KEYS 1 meta      hash
-- KEYS 2 line      bitmap  places that wait
-- KEYS 3 back      bitmap  places of the gap that may not return (again)
-- KEYS 4 pulse:0   bitmap  places heard from, slice 0
-- KEYS 5 pulse:1   bitmap
-- KEYS 6 pulse:2   bitmap
-- KEYS 7 pulse:3   bitmap
-- KEYS 8 pulse:4   bitmap
-- KEYS 9 members   hash    person: the place taken last
-- ARGV 1 start     int     first place of the block
-- ARGV 2 end       int     first place after it
-- ARGV 3 fetch     int     how often the database handed it out
-- ARGV 4 why       text    used_up: the last block is; new_life: Redis began one; refused: the places of the last block
--                          may belong to others, because the database handed it out again
-- ARGV 5 gap_wait  int     ms until admission may reach the gap
-- ARGV 6 parked    int     the next place when all servers stopped cleanly: if it is still the next, no place was lost
--
-- REPLY OK        stored, or not needed: a block that is not ahead of the last one is dropped, never reused
-- REPLY STALE     Redis began a new life in the meantime: nothing was stored
-- REPLY UNREADY   the event is not here, or only a part of it
--
-- KEEPS blocks only move forward

local META, LINE, BACK = unpack(KEYS)
local PULSES = { unpack(KEYS, 4, 8) }
local MEMBERS = unpack(KEYS, 9)
local start, stop, fetch = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local why, gap_wait, parked = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local last_now, skew, waiting, block_life, next_place, block_end, slice, gap_from, gap_to, base, block =
  unpack(redis.call('HMGET', META,
    'now', 'skew', 'waiting', 'life', 'next', 'end', 'slice', 'gap_from', 'gap_to', 'base', 'block'))

-- shared: readiness
-- An event is ready if it knows how many people wait and, if anyone does, has a line.
waiting = tonumber(waiting)
if not waiting or (waiting > 0 and redis.call('EXISTS', LINE) == 0) then return { 'UNREADY' } end

-- shared: clock
-- The event's time never goes back: if the clock of Redis steps back, `skew` makes up for it.
local seconds, micros = unpack(redis.call('TIME'))
local clock = seconds * 1000 + math.floor(micros / 1000)
local now = math.max(clock + skew, tonumber(last_now))

next_place, block_end = tonumber(next_place), tonumber(block_end)
if start < block_end then return { 'OK' } end

-- shared: run of bits
-- Sets all bits from `first` to `last` with one SETRANGE. It clears the rest of the last byte: nothing may be set
-- after `last` yet.
local function set_run(key, first, last)
  local first_byte, last_byte = math.floor(first / 8), math.floor(last / 8)
  local opening = bit.rshift(255, first % 8)
  local closing = bit.band(bit.lshift(255, 7 - last % 8), 255)
  local rest = ''
  if first_byte == last_byte then
    opening = bit.band(opening, closing)
  else
    rest = string.rep('\255', last_byte - first_byte - 1) .. string.char(closing)
  end
  local before = string.byte(redis.call('GETRANGE', key, first_byte, first_byte)) or 0
  redis.call('SETRANGE', key, first_byte, string.char(bit.bor(before, opening)) .. rest)
end

-- shared: life
-- Redis takes a new replication id when it restarts and when a replica is promoted.
local life = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')

if life ~= block_life and why ~= 'new_life' then return { 'STALE' } end

-- The first place that may be lost: after a new life the next one, unless it is known that none was given out since.
-- Of a refused block every place may have been given out by others, and those given out here were told to nobody.
local lost_from
if why == 'refused' then
  lost_from = math.max(tonumber(block) or 0, tonumber(base))
elseif life ~= block_life and parked ~= next_place then
  lost_from = next_place
end
if lost_from then
  base, gap_from, gap_to = tonumber(base), tonumber(gap_from), tonumber(gap_to)
  -- Two losses become one gap. This Redis knows the places it gave out in between, so they may not return.
  if gap_to > 0 and gap_to < lost_from then set_run(BACK, gap_to - base, lost_from - base - 1) end
  if gap_to > 0 then lost_from = math.min(lost_from, gap_from) end
  redis.call('HSET', META, 'gap_from', lost_from, 'gap_to', start, 'gap_opens', now + gap_wait, 'gap_turns', 0)
  redis.call('HINCRBY', META, 'restores', 1)
  -- Recent pulses may be lost too. Everyone in the line counts as present, or the first to poll would overtake.
  if waiting > 0 then
    local pulse = PULSES[slice + 1]
    redis.call('BITOP', 'OR', pulse, pulse, LINE)
  end
end
if why == 'refused' then
  local members = redis.call('HGETALL', MEMBERS)
  for i = 1, #members, 2 do
    local person, place = members[i], tonumber(members[i + 1])
    if place >= (tonumber(block) or 0) then redis.call('HDEL', MEMBERS, person) end
  end
end
-- What is left of the old block is skipped, so that every place given out belongs to the block named in the reply.
if waiting == 0 then redis.call('HSET', META, 'head', start) end
redis.call('HSET', META, 'life', life, 'next', start, 'end', stop, 'block', start, 'fetch', fetch, 'now', now,
  'skew', now - clock)
redis.call('HINCRBY', META, 'line_version', 1)
return { 'OK' }
