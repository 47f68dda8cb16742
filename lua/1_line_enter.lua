#!lua
-- line_enter: visitors that arrived together take the next places in the line.
-- version 1 | stage 1 | writes | O(count / 8)
--
-- KEYS 1 meta     hash
-- KEYS 2 line     bitmap  who waits
-- KEYS 3 policy   hash
-- KEYS 4 pulse:0  bitmap  who was heard from, slice 0
-- KEYS 5 pulse:1  bitmap
-- KEYS 6 pulse:2  bitmap
-- KEYS 7 pulse:3  bitmap
-- KEYS 8 pulse:4  bitmap
-- ARGV 1 count    int     how many ask, 1 or more
--
-- REPLY ENTERED first_place count first_rank   the first `count` of them are in; the rest found the line full
-- REPLY FULL         as many wait as the policy allows
-- REPLY CLOSED       the sale is over
-- REPLY SOLD_OUT     no seat is unsold
-- REPLY STALE        the block of places belongs to an earlier life of this Redis
-- REPLY NEED_BLOCK   the block of places is used up
-- REPLY UNREADY      the event is not here, or only a part of it
--
-- KEEPS a place is given out once; waiting is the number of bits in the line

local asked = tonumber(ARGV[1])
local meta = redis.call('HMGET', KEYS[1], 'now', 'skew', 'waiting', 'life', 'next', 'end', 'base', 'slice',
  'state', 'sold', 'seats', 'head', 'entered')
local waiting = tonumber(meta[3])
if not waiting or (waiting > 0 and redis.call('EXISTS', KEYS[2]) == 0) then return { 'UNREADY' } end

local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = math.max(clock + meta[2], tonumber(meta[1]))

if meta[9] == 'closed' then return { 'CLOSED' } end
if tonumber(meta[10]) >= tonumber(meta[11]) then return { 'SOLD_OUT' } end
if string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') ~= meta[4] then return { 'STALE' } end

local count = asked
local max_queue = tonumber(redis.call('HGET', KEYS[3], 'max_queue'))
if max_queue > 0 then count = math.min(asked, max_queue - waiting) end
if count <= 0 then return { 'FULL' } end

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
return { 'ENTERED', first, count, waiting + 1 }
