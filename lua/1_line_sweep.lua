#!lua
-- line_sweep: turn the ring of pulse slices, drop places that were silent for all of it, trim the front.
-- version 7 | stage 1 | writes | O(line)
--
-- Servers request sweeps continuously. A gap between requests means that nobody could be served, and such time does
-- not count as silence: the current slice starts over, so that delayed pulses arrive before the ring turns.
-- For the same reason it does not run in a full Redis: there no pulse can be written.
--
-- KEYS 1 meta      hash
-- KEYS 2 line      bitmap  places that wait
-- KEYS 3 policy    hash
-- KEYS 4 back      bitmap  places of the gap that may not return (again)
-- KEYS 5 tmp       bitmap
-- KEYS 6 pulse:0   bitmap  places heard from, slice 0
-- KEYS 7 pulse:1   bitmap
-- KEYS 8 pulse:2   bitmap
-- KEYS 9 pulse:3   bitmap
-- KEYS 10 pulse:4  bitmap
--
-- REPLY SWEPT n   the ring turned; n places were dropped
-- REPLY SKIPPED   no place was dropped: it is too early, requests had paused, or more than half of the line would go
-- REPLY UNREADY   the event is not here, or only a part of it
--
-- KEEPS no place is dropped before a full queue TTL of served silence; a visitor who polls on time is heard in one of
--       two neighbouring slices

local META, LINE, POLICY, BACK, TMP = unpack(KEYS)
local PULSES = { unpack(KEYS, 6) }
local last_now, skew, waiting, base, next_place, head, slice, turned, suspect, gap_to, gap_opens, gap_turns, last_asked, absent =
  unpack(redis.call('HMGET', META, 'now', 'skew', 'waiting', 'base', 'next', 'head', 'slice', 'turned', 'suspect',
    'gap_to', 'gap_opens', 'gap_turns', 'asked', 'absent'))

-- shared: readiness
-- An event is ready if it knows how many people wait and, if anyone does, has a line.
waiting = tonumber(waiting)
if not waiting or (waiting > 0 and redis.call('EXISTS', LINE) == 0) then return { 'UNREADY' } end

-- shared: clock
-- The event's time never goes back: if the clock of Redis steps back, `skew` makes up for it.
local seconds, micros = unpack(redis.call('TIME'))
local clock = seconds * 1000 + math.floor(micros / 1000)
local now = math.max(clock + skew, tonumber(last_now))

local queue_ttl_ms, slow_ttl_ms, slow_until =
  unpack(redis.call('HMGET', POLICY, 'queue_ttl_ms', 'slow_ttl_ms', 'slow_until'))

-- shared: slice
-- There are four full slices in a queue TTL. After that became shorter, they stay long for a while.
local slice_ms = (now < (tonumber(slow_until) or 0) and slow_ttl_ms or queue_ttl_ms) / 4

-- shared: silence
-- How long nobody has requested a sweep: time in which no poll could be recorded. After a restore there is no `asked`
-- yet, and `turned` is the moment of the restore.
local silence = now - (last_asked or turned)
if silence <= math.max(slice_ms / 8, 500) then silence = 0 end

redis.call('HSET', META, 'asked', now, 'now', now, 'skew', now - clock)
if silence == 0 and now - turned < slice_ms then return { 'SKIPPED' } end
redis.call('HSET', META, 'turned', now)
gap_to, gap_turns = tonumber(gap_to), tonumber(gap_turns)
if silence > 0 then
  -- Lost places get as much more time to return.
  if gap_to > 0 then redis.call('HSET', META, 'gap_opens', gap_opens + silence) end
  return { 'SKIPPED' }
end

base, next_place, head = tonumber(base), tonumber(next_place), tonumber(head)
slice = (slice + 1) % 5
redis.call('DEL', PULSES[slice + 1])
redis.call('HSET', META, 'slice', slice)

-- A place that a restore lost is gone, like any other, after a TTL of silence: then the gap closes.
if gap_to > 0 then
  if gap_turns >= 4 then
    redis.call('HSET', META, 'gap_from', 0, 'gap_to', 0, 'gap_turns', 0)
    redis.call('HINCRBY', META, 'line_version', 1)
    redis.call('DEL', BACK)
    gap_to = 0
  else
    redis.call('HINCRBY', META, 'gap_turns', 1)
  end
end

local lost = 0
if waiting > 0 then
  redis.call('BITOP', 'OR', TMP, unpack(PULSES))
  redis.call('BITOP', 'AND', TMP, TMP, LINE)
  local alive = redis.call('BITCOUNT', TMP)
  lost = waiting - alive
  -- If most of a long line seems gone, the fault is likelier ours: wait four more turns before dropping it.
  suspect = tonumber(suspect)
  if waiting > 100 and alive * 2 < waiting and suspect < 4 then
    redis.call('DEL', TMP)
    redis.call('HSET', META, 'suspect', suspect + 1)
    redis.call('HINCRBY', META, 'sweeps_skipped', 1)
    return { 'SKIPPED' }
  end
  if suspect > 0 then redis.call('HSET', META, 'suspect', 0) end
  if alive == 0 then
    redis.call('DEL', LINE, TMP)
    head = next_place
  elseif lost > 0 then
    redis.call('RENAME', TMP, LINE)
    head = base + redis.call('BITPOS', LINE, 1, math.floor((head - base) / 8))
  else
    redis.call('DEL', TMP)
  end
  if lost > 0 then
    -- Whoever is dropped was absent.
    redis.call('HSET', META, 'waiting', alive, 'absent', math.max((tonumber(absent) or 0) - lost, 0), 'head', head)
    redis.call('HINCRBY', META, 'swept', lost)
    redis.call('HINCRBY', META, 'line_version', 1)
  end
end

-- Cut whole megabits off the front: the bitmaps grow with the line, not with its history.
local MEGABIT = 1048576
if head - base >= 2 * MEGABIT and gap_to == 0 then
  local cut = math.floor((head - base) / MEGABIT) * MEGABIT
  for _, key in ipairs({ LINE, unpack(PULSES) }) do
    local kept = redis.call('GETRANGE', key, cut / 8, -1)
    if kept == '' then redis.call('DEL', key) else redis.call('SET', key, kept) end
  end
  redis.call('HSET', META, 'base', base + cut)
  redis.call('HINCRBY', META, 'line_version', 1)
end
return { 'SWEPT', lost }
