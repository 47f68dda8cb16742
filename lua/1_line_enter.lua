#!lua
-- line_enter: visitors that arrived together take the next places in the line.
-- version 4 | stage 1 | writes | O(count / 8), and O(1) a person
--
-- Where each person may have one place, the call names the people. Those whose place is alive get it again.
--
-- KEYS 1 meta     hash
-- KEYS 2 line     bitmap  places that wait
-- KEYS 3 policy   hash
-- KEYS 4 pulse:0  bitmap  places heard from, slice 0
-- KEYS 5 pulse:1  bitmap
-- KEYS 6 pulse:2  bitmap
-- KEYS 7 pulse:3  bitmap
-- KEYS 8 pulse:4  bitmap
-- KEYS 9 back     bitmap  places of the gap that may not return (again)
-- KEYS 10 passes  zset    place by deadline, ms
-- KEYS 11 members hash    person: the place taken last
-- ARGV 1 count    int     how many ask, 1 or more
-- ARGV 2 person   bytes … each person who asks; none where anyone may take any number of places
--
-- REPLY ENTERED block fetch first count rank place …   the first `count` newcomers are in; for the rest it was full
-- REPLY FULL block fetch place …         as many wait as the policy allows
-- REPLY CLOSED block fetch place …       the sale is over
-- REPLY SOLD_OUT block fetch place …     no seat is unsold
-- REPLY STALE                            the block of places belongs to an earlier life of this Redis
-- REPLY NEED_BLOCK                       the block of places is used up
-- REPLY UNREADY                          the event is not here, or only a part of it
--
-- `place …` has one value for each person: the place they have now, or -1. `block` and `fetch` name the block that
-- places come from: a server tells nobody a place before the database knows that the block is used.
--
-- KEEPS a place is given out once; waiting is the number of bits in the line; a person has one place that is alive

local META, LINE, POLICY = unpack(KEYS)
local PULSES = { unpack(KEYS, 4, 8) }
local BACK, PASSES, MEMBERS = unpack(KEYS, 9)
local asked = tonumber(ARGV[1])
local last_now, skew, waiting, block_life, next_place, block_end, base, slice, state, sold, seats_total, head, entered,
  gap_from, gap_to, block, fetch = unpack(redis.call('HMGET', META,
    'now', 'skew', 'waiting', 'life', 'next', 'end', 'base', 'slice', 'state', 'sold', 'seats', 'head', 'entered',
    'gap_from', 'gap_to', 'block', 'fetch'))

-- shared: readiness
-- An event is ready if it knows how many people wait and, if anyone does, has a line.
waiting = tonumber(waiting)
if not waiting or (waiting > 0 and redis.call('EXISTS', LINE) == 0) then return { 'UNREADY' } end

-- shared: clock
-- The event's time never goes back: if the clock of Redis steps back, `skew` makes up for it.
local seconds, micros = unpack(redis.call('TIME'))
local clock = seconds * 1000 + math.floor(micros / 1000)
local now = math.max(clock + skew, tonumber(last_now))

base, next_place, block_end = tonumber(base), tonumber(next_place), tonumber(block_end)
gap_from, gap_to = tonumber(gap_from), tonumber(gap_to)
-- A block from an older server has no number.
block, fetch = tonumber(block) or 0, tonumber(fetch) or 0

-- Whether a place waits, is inside, or was lost by a restore and may come back.
local function alive(place)
  local deadline = redis.call('ZSCORE', PASSES, place)
  if deadline then return tonumber(deadline) > now end
  local at = place - base
  if at < 0 then return false end
  if place < next_place and redis.call('GETBIT', LINE, at) == 1 then return true end
  return place >= gap_from and place < gap_to and redis.call('GETBIT', BACK, at) == 0
end

-- If the call names people, those without a place are newcomers. A person who asks twice in one call counts once.
local places, newcomers, nth = {}, {}, {}
for i = 2, #ARGV do
  local person = ARGV[i]
  local place = tonumber(redis.call('HGET', MEMBERS, person))
  if place and alive(place) then
    places[i - 1] = place
  else
    places[i - 1] = -1
    if not nth[person] then
      newcomers[#newcomers + 1] = person
      nth[person] = #newcomers
    end
  end
end
local count = asked
if #places > 0 then count = #newcomers end
if count == 0 then return { 'ENTERED', block, fetch, 0, 0, 0, unpack(places) } end

if state == 'closed' then return { 'CLOSED', block, fetch, unpack(places) } end
if tonumber(sold) >= tonumber(seats_total) then return { 'SOLD_OUT', block, fetch, unpack(places) } end

-- shared: life
-- Redis takes a new replication id when it restarts and when a replica is promoted.
local life = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')

if life ~= block_life then return { 'STALE' } end

local max_queue = tonumber(redis.call('HGET', POLICY, 'max_queue'))
if max_queue > 0 then count = math.min(count, max_queue - waiting) end
if count <= 0 then return { 'FULL', block, fetch, unpack(places) } end

local first, after = next_place, next_place + count
if after > block_end then return { 'NEED_BLOCK' } end

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

set_run(LINE, first - base, after - base - 1)
set_run(PULSES[slice + 1], first - base, after - base - 1)

if waiting == 0 then head = first end
redis.call('HSET', META, 'next', after, 'waiting', waiting + count, 'head', head, 'entered', entered + count,
  'now', now, 'skew', now - clock)

for i = 1, math.min(count, #newcomers) do redis.call('HSET', MEMBERS, newcomers[i], first + i - 1) end
for i = 2, #ARGV do
  local number = nth[ARGV[i]]
  if number and number <= count then places[i - 1] = first + number - 1 end
end
return { 'ENTERED', block, fetch, first, count, waiting + 1, unpack(places) }
