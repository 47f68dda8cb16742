#!lua
-- line_enter: visitors that arrived together take the next places in the line.
-- version 2 | stage 1 | writes | O(count / 8), and O(1) a member
--
-- Where one place a person is allowed, everyone who asks is a member: who has a place that is alive gets it again.
--
-- KEYS 1 meta     hash
-- KEYS 2 line     bitmap  who waits
-- KEYS 3 policy   hash
-- KEYS 4 pulse:0  bitmap  who was heard from, slice 0
-- KEYS 5 pulse:1  bitmap
-- KEYS 6 pulse:2  bitmap
-- KEYS 7 pulse:3  bitmap
-- KEYS 8 pulse:4  bitmap
-- KEYS 9 back     bitmap  places of the gap that may not return (again)
-- KEYS 10 passes  zset    place by deadline, ms
-- KEYS 11 members hash    member: the place taken last
-- ARGV 1 count    int     how many ask, 1 or more
-- ARGV 2 member   bytes … as many as ask, or none where anyone may take any number of places
--
-- REPLY ENTERED first count rank place …   the first `count` newcomers are in, the rest found the line full
-- REPLY FULL place …         as many wait as the policy allows
-- REPLY CLOSED place …       the sale is over
-- REPLY SOLD_OUT place …     no seat is unsold
-- REPLY STALE                the block of places belongs to an earlier life of this Redis
-- REPLY NEED_BLOCK           the block of places is used up
-- REPLY UNREADY              the event is not here, or only a part of it
--
-- `place …` is one for each member: the place they have now, -1 for who has none.
--
-- KEEPS a place is given out once; waiting is the number of bits in the line; a member has one place that is alive

local asked = tonumber(ARGV[1])
local meta = redis.call('HMGET', KEYS[1], 'now', 'skew', 'waiting', 'life', 'next', 'end', 'base', 'slice',
  'state', 'sold', 'seats', 'head', 'entered', 'gap_from', 'gap_to')
local waiting = tonumber(meta[3])
if not waiting or (waiting > 0 and redis.call('EXISTS', KEYS[2]) == 0) then return { 'UNREADY' } end

local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = math.max(clock + meta[2], tonumber(meta[1]))

-- Whether a place waits, is inside, or was lost by a restore and may come back.
local function alive(place)
  local pass = redis.call('ZSCORE', KEYS[10], place)
  if pass then return tonumber(pass) > now end
  local at = place - meta[7]
  if at < 0 then return false end
  if place < tonumber(meta[5]) and redis.call('GETBIT', KEYS[2], at) == 1 then return true end
  return place >= tonumber(meta[14]) and place < tonumber(meta[15]) and redis.call('GETBIT', KEYS[9], at) == 0
end

-- With members only those count as newcomers who have no place; who asks twice at once counts once.
local places, newcomers, nth = {}, {}, {}
for i = 2, #ARGV do
  local place = tonumber(redis.call('HGET', KEYS[11], ARGV[i]))
  if place and alive(place) then
    places[i - 1] = place
  else
    places[i - 1] = -1
    if not nth[ARGV[i]] then
      newcomers[#newcomers + 1] = ARGV[i]
      nth[ARGV[i]] = #newcomers
    end
  end
end
local count = asked
if #places > 0 then count = #newcomers end
if count == 0 then return { 'ENTERED', 0, 0, 0, unpack(places) } end

if meta[9] == 'closed' then return { 'CLOSED', unpack(places) } end
if tonumber(meta[10]) >= tonumber(meta[11]) then return { 'SOLD_OUT', unpack(places) } end
if string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') ~= meta[4] then return { 'STALE' } end

local max_queue = tonumber(redis.call('HGET', KEYS[3], 'max_queue'))
if max_queue > 0 then count = math.min(count, max_queue - waiting) end
if count <= 0 then return { 'FULL', unpack(places) } end

local first = tonumber(meta[5])
if first + count > tonumber(meta[6]) then return { 'NEED_BLOCK' } end

-- The new bits as bytes: one SETRANGE instead of a SETBIT a person.
local from = first - meta[7]
local last = from + count - 1
local first_byte, last_byte = math.floor(from / 8), math.floor(last / 8)
local opening = bit.rshift(255, from % 8)
local closing = bit.band(bit.lshift(255, 7 - last % 8), 255)
local rest = ''
if first_byte == last_byte then
  opening = bit.band(opening, closing)
else
  rest = string.rep('\255', last_byte - first_byte - 1) .. string.char(closing)
end
for _, key in ipairs({ KEYS[2], KEYS[4 + meta[8]] }) do
  local shared = string.byte(redis.call('GETRANGE', key, first_byte, first_byte)) or 0
  redis.call('SETRANGE', key, first_byte, string.char(bit.bor(shared, opening)) .. rest)
end

local head = meta[12]
if waiting == 0 then head = first end
redis.call('HSET', KEYS[1], 'next', first + count, 'waiting', waiting + count, 'head', head, 'entered', meta[13] + count,
  'now', now, 'skew', now - clock)

for i = 1, math.min(count, #newcomers) do redis.call('HSET', KEYS[11], newcomers[i], first + i - 1) end
for i = 2, #ARGV do
  local number = nth[ARGV[i]]
  if number and number <= count then places[i - 1] = first + number - 1 end
end
return { 'ENTERED', first, count, waiting + 1, unpack(places) }
