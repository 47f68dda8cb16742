#!lua flags=allow-oom
-- line_sweep: turn the ring of pulse slices, drop who was silent for all of it, trim the front.
-- version 2 | stage 1 | writes | O(line)
--
-- Time in which nobody served does not count as silence. It shows by nobody having asked for a sweep: then the slice
-- starts again, so that the pulses that waited arrive before the ring turns.
--
-- KEYS 1 meta      hash
-- KEYS 2 line      bitmap  who waits
-- KEYS 3 policy    hash
-- KEYS 4 back      bitmap  places of the gap that may not return (again)
-- KEYS 5 tmp       bitmap
-- KEYS 6 pulse:0   bitmap  who was heard from, slice 0
-- KEYS 7 pulse:1   bitmap
-- KEYS 8 pulse:2   bitmap
-- KEYS 9 pulse:3   bitmap
-- KEYS 10 pulse:4  bitmap
--
-- REPLY SWEPT n   turned; n were dropped
-- REPLY SKIPPED   too early, after a time without service, or more than half would go
-- REPLY UNREADY   the event is not here, or only a part of it
--
-- KEEPS nobody is dropped before a full queue TTL of served silence; who polls as told is heard in one of two slices

local meta = redis.call('HMGET', KEYS[1], 'now', 'skew', 'waiting', 'base', 'next', 'head', 'slice', 'turned',
  'suspect', 'gap_to', 'gap_turns', 'asked')
local waiting = tonumber(meta[3])
if not waiting or (waiting > 0 and redis.call('EXISTS', KEYS[2]) == 0) then return { 'UNREADY' } end

local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = math.max(clock + meta[2], tonumber(meta[1]))

local slice_ms = redis.call('HGET', KEYS[3], 'queue_ttl_ms') / 4
local unasked = now - (meta[12] or meta[8])
redis.call('HSET', KEYS[1], 'asked', now, 'now', now, 'skew', now - clock)
local served = unasked <= math.max(slice_ms / 8, 500)
if served and now - meta[8] < slice_ms then return { 'SKIPPED' } end
redis.call('HSET', KEYS[1], 'turned', now)
if not served then return { 'SKIPPED' } end

local base, next_place, head = tonumber(meta[4]), tonumber(meta[5]), tonumber(meta[6])
local slice = (meta[7] + 1) % 5
redis.call('DEL', KEYS[6 + slice])
redis.call('HSET', KEYS[1], 'slice', slice)

-- Who was lost by a restore and stayed silent for a TTL is gone like anyone else.
local gap_to = tonumber(meta[10])
if gap_to > 0 then
  if tonumber(meta[11]) >= 4 then
    redis.call('HSET', KEYS[1], 'gap_from', 0, 'gap_to', 0, 'gap_turns', 0)
    redis.call('HINCRBY', KEYS[1], 'line_version', 1)
    redis.call('DEL', KEYS[4])
    gap_to = 0
  else
    redis.call('HINCRBY', KEYS[1], 'gap_turns', 1)
  end
end

local lost = 0
if waiting > 0 then
  redis.call('BITOP', 'OR', KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10])
  redis.call('BITOP', 'AND', KEYS[5], KEYS[5], KEYS[2])
  local alive = redis.call('BITCOUNT', KEYS[5])
  lost = waiting - alive
  local suspect = tonumber(meta[9])
  if waiting > 100 and alive * 2 < waiting and suspect < 4 then
    redis.call('DEL', KEYS[5])
    redis.call('HSET', KEYS[1], 'suspect', suspect + 1)
    redis.call('HINCRBY', KEYS[1], 'sweeps_skipped', 1)
    return { 'SKIPPED' }
  end
  if suspect > 0 then redis.call('HSET', KEYS[1], 'suspect', 0) end
  if alive == 0 then
    redis.call('DEL', KEYS[2], KEYS[5])
    head = next_place
  elseif lost > 0 then
    redis.call('RENAME', KEYS[5], KEYS[2])
    head = base + redis.call('BITPOS', KEYS[2], 1, math.floor((head - base) / 8))
  else
    redis.call('DEL', KEYS[5])
  end
  if lost > 0 then
    redis.call('HSET', KEYS[1], 'waiting', alive, 'head', head)
    redis.call('HINCRBY', KEYS[1], 'swept', lost)
    redis.call('HINCRBY', KEYS[1], 'line_version', 1)
  end
end

-- Cut whole megabits off the front, so that the bitmaps stay as long as the line, not as its history.
local megabit = 1048576
if head - base >= 2 * megabit and gap_to == 0 then
  local cut = math.floor((head - base) / megabit) * megabit
  for _, key in ipairs({ KEYS[2], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10] }) do
    local kept = redis.call('GETRANGE', key, cut / 8, -1)
    if kept == '' then redis.call('DEL', key) else redis.call('SET', key, kept) end
  end
  redis.call('HSET', KEYS[1], 'base', base + cut)
  redis.call('HINCRBY', KEYS[1], 'line_version', 1)
end
return { 'SWEPT', lost }
