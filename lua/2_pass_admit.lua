#!lua
-- pass_admit: end overdue passes, then let in the next visitors that are present, in order.
-- version 7 | stage 2 | writes | O(passes ended + admitted) + O(line) of native bit operations
--
-- KEYS 1 meta      hash
-- KEYS 2 line      bitmap  places that wait
-- KEYS 3 policy    hash
-- KEYS 4 passes    zset    place by deadline, ms
-- KEYS 5 limits    hash    place: latest moment its pass can be stretched to
-- KEYS 6 tmp       bitmap
-- KEYS 7 pulse:0   bitmap  places heard from, slice 0
-- KEYS 8 pulse:1   bitmap
-- KEYS 9 pulse:2   bitmap
-- KEYS 10 pulse:3  bitmap
-- KEYS 11 pulse:4  bitmap
-- KEYS 12 people   hash    place: the person who uses it
--
-- REPLY ADMITTED n        n visitors were let in, maybe none
-- REPLY SKIPPED wait_ms   the last admission was less than an interval ago
-- REPLY PAUSED            an operator paused or closed the event
-- REPLY STALE             the block of places belongs to an earlier life of this Redis
-- REPLY UNREADY           the event is not here, or only a part of it
--
-- KEEPS admission never takes the number inside above max_active or the unsold seats; absent visitors keep their place

local META, LINE, POLICY, PASSES, LIMITS, TMP = unpack(KEYS)
local PULSES = { unpack(KEYS, 7, 11) }
local PEOPLE = unpack(KEYS, 12)
local last_now, skew, waiting, block_life, base, next_place, head, slice, state, admitted_at, seats_total, sold,
  gap_from, gap_to, gap_opens, turned, last_asked = unpack(redis.call('HMGET', META,
    'now', 'skew', 'waiting', 'life', 'base', 'next', 'head', 'slice', 'state', 'admitted_at', 'seats', 'sold',
    'gap_from', 'gap_to', 'gap_opens', 'turned', 'asked'))

-- shared: readiness
-- An event is ready if it knows how many people wait and, if anyone does, has a line.
waiting = tonumber(waiting)
if not waiting or (waiting > 0 and redis.call('EXISTS', LINE) == 0) then return { 'UNREADY' } end

-- shared: clock
-- The event's time never goes back: if the clock of Redis steps back, `skew` makes up for it.
local seconds, micros = unpack(redis.call('TIME'))
local clock = seconds * 1000 + math.floor(micros / 1000)
local now = math.max(clock + skew, tonumber(last_now))

-- An overdue pass ends whatever the reply will be.
local overdue = redis.call('ZRANGEBYSCORE', PASSES, '-inf', now)
for i = 1, #overdue, 1000 do
  redis.call('ZREM', PASSES, unpack(overdue, i, math.min(i + 999, #overdue)))
  redis.call('HDEL', LIMITS, unpack(overdue, i, math.min(i + 999, #overdue)))
  redis.call('HDEL', PEOPLE, unpack(overdue, i, math.min(i + 999, #overdue)))
end
if #overdue > 0 then
  redis.call('HINCRBY', META, 'passes_version', 1)
  redis.call('HINCRBY', META, 'overdue', #overdue)
end
redis.call('HSET', META, 'now', now, 'skew', now - clock)

if state ~= 'open' then return { 'PAUSED' } end

-- shared: life
-- Redis takes a new replication id when it restarts and when a replica is promoted.
local life = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')

if life ~= block_life then return { 'STALE' } end

local interval_ms, batch, max_active, active_ttl_ms, hold_ttl_ms, queue_ttl_ms, slow_ttl_ms, slow_until =
  unpack(redis.call('HMGET', POLICY, 'interval_ms', 'batch', 'max_active', 'active_ttl_ms', 'hold_ttl_ms', 'queue_ttl_ms',
    'slow_ttl_ms', 'slow_until'))
local early = admitted_at + interval_ms - now
if early > 0 then return { 'SKIPPED', early } end

local inside = redis.call('ZCARD', PASSES)
local room = math.min(tonumber(batch), max_active - inside, seats_total - sold - inside)
if waiting == 0 or seats_total - sold <= 0 then
  redis.call('HDEL', META, 'absent')
  return { 'ADMITTED', 0 }
end

-- Present means heard from in this slice or the one before. A visitor who polls on time is always in one of them.
base, next_place, head, slice = tonumber(base), tonumber(next_place), tonumber(head), tonumber(slice)
redis.call('BITOP', 'OR', TMP, PULSES[slice + 1], PULSES[(slice + 4) % 5 + 1])
redis.call('BITOP', 'AND', TMP, TMP, LINE)
redis.call('HSET', META, 'absent', waiting - redis.call('BITCOUNT', TMP))
if room <= 0 then
  redis.call('DEL', TMP)
  return { 'ADMITTED', 0 }
end

-- shared: slice
-- There are four full slices in a queue TTL. After that became shorter, they stay long for a while.
local slice_ms = (now < (tonumber(slow_until) or 0) and slow_ttl_ms or queue_ttl_ms) / 4

-- shared: silence
-- How long nobody has requested a sweep: time in which no poll could be recorded. After a restore there is no `asked`
-- yet, and `turned` is the moment of the restore.
local silence = now - (last_asked or turned)
if silence <= math.max(slice_ms / 8, 500) then silence = 0 end

-- While lost places may still return, nobody behind them is let in. The time in which no poll could be recorded does not
-- count: the next sweep adds it to `gap_opens`.
local stop = math.huge
if tonumber(gap_to) > 0 and now < gap_opens + silence then stop = gap_from - base end

-- Takes present places out of the line, a chunk of bytes at a time.
local CHUNK = 1024
local admitted = {}
local head_byte = math.floor((head - base) / 8)
local at = redis.call('BITPOS', TMP, 1, head_byte)
while at >= 0 and at < stop and #admitted < room do
  local byte = math.floor(at / 8)
  local present = redis.call('GETRANGE', TMP, byte, byte + CHUNK - 1)
  local line = redis.call('GETRANGE', LINE, byte, byte + CHUNK - 1)
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
  redis.call('SETRANGE', LINE, byte, table.concat(rebuilt))
  at = redis.call('BITPOS', TMP, 1, byte + CHUNK)
end
redis.call('DEL', TMP)
if #admitted == 0 then return { 'ADMITTED', 0 } end

local deadline = now + active_ttl_ms
local limit = deadline + hold_ttl_ms
for i = 1, #admitted, 1000 do
  local passes, limits = {}, {}
  for j = i, math.min(i + 999, #admitted) do
    passes[#passes + 1], passes[#passes + 2] = deadline, admitted[j]
    limits[#limits + 1], limits[#limits + 2] = admitted[j], limit
  end
  redis.call('ZADD', PASSES, unpack(passes))
  redis.call('HSET', LIMITS, unpack(limits))
end

waiting = waiting - #admitted
local new_head = next_place
if waiting > 0 then new_head = base + redis.call('BITPOS', LINE, 1, head_byte) end
redis.call('HSET', META, 'waiting', waiting, 'head', new_head, 'admitted_at', now)
redis.call('HINCRBY', META, 'admitted', #admitted)
-- Servers always re-read the front of a long line. They re-read the rest only when its version moves.
if admitted[#admitted] - head > 100000 then redis.call('HINCRBY', META, 'line_version', 1) end
redis.call('HINCRBY', META, 'passes_version', 1)
return { 'ADMITTED', #admitted }
