#!lua
-- pass_admit: end overdue passes, then let in the next visitors that are present, in order.
-- version 1 | stage 2 | writes | O(admitted) + O(line) of native bit operations
--
-- KEYS 1 meta      hash
-- KEYS 2 line      bitmap  who waits
-- KEYS 3 policy    hash
-- KEYS 4 passes    zset    place by deadline, ms
-- KEYS 5 limits    hash    place: latest moment its pass can be stretched to
-- KEYS 6 tmp       bitmap
-- KEYS 7 pulse:0   bitmap  who was heard from, slice 0
-- KEYS 8 pulse:1   bitmap
-- KEYS 9 pulse:2   bitmap
-- KEYS 10 pulse:3  bitmap
-- KEYS 11 pulse:4  bitmap
--
-- REPLY ADMITTED n        n were let in, maybe none
-- REPLY SKIPPED wait_ms   the last admission was less than an interval ago
-- REPLY PAUSED            an operator paused or closed the event
-- REPLY STALE             the block of places belongs to an earlier life of this Redis
-- REPLY UNREADY           the event is not here, or only a part of it
--
-- KEEPS never more inside than max_active or unsold seats; absent people keep their place

local meta = redis.call('HMGET', KEYS[1], 'now', 'skew', 'waiting', 'life', 'base', 'next', 'head', 'slice', 'state',
  'admitted_at', 'seats', 'sold', 'gap_from', 'gap_to', 'gap_opens')
local waiting = tonumber(meta[3])
if not waiting or (waiting > 0 and redis.call('EXISTS', KEYS[2]) == 0) then return { 'UNREADY' } end

local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = math.max(clock + meta[2], tonumber(meta[1]))

local overdue = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now)
for i = 1, #overdue, 1000 do
  redis.call('ZREM', KEYS[4], unpack(overdue, i, math.min(i + 999, #overdue)))
  redis.call('HDEL', KEYS[5], unpack(overdue, i, math.min(i + 999, #overdue)))
end
if #overdue > 0 then
  redis.call('HINCRBY', KEYS[1], 'passes_version', 1)
  redis.call('HINCRBY', KEYS[1], 'overdue', #overdue)
end
redis.call('HSET', KEYS[1], 'now', now, 'skew', now - clock)

if meta[9] ~= 'open' then return { 'PAUSED' } end
if string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') ~= meta[4] then return { 'STALE' } end

local policy = redis.call('HMGET', KEYS[3], 'interval_ms', 'batch', 'max_active', 'active_ttl_ms', 'hold_ttl_ms')
local early = meta[10] + policy[1] - now
if early > 0 then return { 'SKIPPED', early } end

local inside = redis.call('ZCARD', KEYS[4])
local room = math.min(tonumber(policy[2]), policy[3] - inside, meta[11] - meta[12] - inside)
if room <= 0 or waiting == 0 then return { 'ADMITTED', 0 } end

-- Present: heard from in this slice or the one before. Who polls as told is always in one of them.
local base, slice = tonumber(meta[5]), tonumber(meta[8])
redis.call('BITOP', 'OR', KEYS[6], KEYS[7 + slice], KEYS[7 + (slice + 4) % 5])
redis.call('BITOP', 'AND', KEYS[6], KEYS[6], KEYS[2])

-- While lost places may still return, nobody behind them is let in.
local stop = math.huge
if tonumber(meta[14]) > 0 and now < tonumber(meta[15]) then stop = meta[13] - base end

local CHUNK = 1024
local admitted = {}
local head_byte = math.floor((meta[7] - base) / 8)
local at = redis.call('BITPOS', KEYS[6], 1, head_byte)
while at >= 0 and at < stop and #admitted < room do
  local byte = math.floor(at / 8)
  local present = redis.call('GETRANGE', KEYS[6], byte, byte + CHUNK - 1)
  local line = redis.call('GETRANGE', KEYS[2], byte, byte + CHUNK - 1)
  local rebuilt, copied = {}, 0
  local i = string.find(present, '[^%z]')
  while i and #admitted < room do
    local candidates, taken = string.byte(present, i), 0
    local first = (byte + i - 1) * 8
    for b = 0, 7 do
      local mask = bit.rshift(128, b)
      if bit.band(candidates, mask) ~= 0 and first + b < stop and #admitted < room then
        admitted[#admitted + 1] = base + first + b
        taken = taken + mask
      end
    end
    rebuilt[#rebuilt + 1] = string.sub(line, copied + 1, i - 1)
    rebuilt[#rebuilt + 1] = string.char(string.byte(line, i) - taken)
    copied = i
    i = string.find(present, '[^%z]', i + 1)
  end
  redis.call('SETRANGE', KEYS[2], byte, table.concat(rebuilt))
  at = redis.call('BITPOS', KEYS[6], 1, byte + CHUNK)
end
redis.call('DEL', KEYS[6])
if #admitted == 0 then return { 'ADMITTED', 0 } end

local deadline = now + policy[4]
local limit = deadline + policy[5]
for i = 1, #admitted, 1000 do
  local passes, limits = {}, {}
  for j = i, math.min(i + 999, #admitted) do
    passes[#passes + 1], passes[#passes + 2] = deadline, admitted[j]
    limits[#limits + 1], limits[#limits + 2] = admitted[j], limit
  end
  redis.call('ZADD', KEYS[4], unpack(passes))
  redis.call('HSET', KEYS[5], unpack(limits))
end

waiting = waiting - #admitted
local head = tonumber(meta[6])
if waiting > 0 then head = base + redis.call('BITPOS', KEYS[2], 1, head_byte) end
redis.call('HSET', KEYS[1], 'waiting', waiting, 'head', head, 'admitted_at', now)
redis.call('HINCRBY', KEYS[1], 'admitted', #admitted)
-- Servers re-read the front of a long line each time and the rest when its version moves.
if admitted[#admitted] - meta[7] > 100000 then redis.call('HINCRBY', KEYS[1], 'line_version', 1) end
redis.call('HINCRBY', KEYS[1], 'passes_version', 1)
return { 'ADMITTED', #admitted }
