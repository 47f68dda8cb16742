#!lua
-- line_block: store a fresh block of places, bound to this life of Redis.
-- version 1 | stage 1 | writes | O(1); O(line) in a new life
--
-- A new life means that this Redis was restarted from a file or promoted from a replica: places given out after
-- that file was written are unknown here. They become the gap: whoever proves a place in it gets it back.
--
-- KEYS 1 meta      hash
-- KEYS 2 line      bitmap  who waits
-- KEYS 3 back      bitmap  places of the gap that may not return (again)
-- KEYS 4 pulse:0   bitmap  who was heard from, slice 0
-- KEYS 5 pulse:1   bitmap
-- KEYS 6 pulse:2   bitmap
-- KEYS 7 pulse:3   bitmap
-- KEYS 8 pulse:4   bitmap
-- ARGV 1 start     int     first place of the block
-- ARGV 2 end       int     first place after it
-- ARGV 3 gap_wait  int     ms until admission may reach the gap; -1: nothing was lost, no gap
--
-- REPLY OK        stored, or not needed: a block that is not ahead of the last one is dropped, never reused
-- REPLY UNREADY   the event is not here, or only a part of it
--
-- KEEPS blocks only move forward

local start, stop, gap_wait = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local meta = redis.call('HMGET', KEYS[1], 'now', 'skew', 'waiting', 'life', 'next', 'end', 'slice', 'gap_from', 'gap_to',
  'base')
local waiting = tonumber(meta[3])
if not waiting or (waiting > 0 and redis.call('EXISTS', KEYS[2]) == 0) then return { 'UNREADY' } end

local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = math.max(clock + meta[2], tonumber(meta[1]))

local first, last_end = tonumber(meta[5]), tonumber(meta[6])
if start < last_end then return { 'OK' } end

local life = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if life == meta[4] then
  if start > last_end then first = start end
else
  if gap_wait >= 0 then
    local gap_from, gap_to = first, tonumber(meta[9])
    if gap_to > 0 then gap_from = math.min(gap_from, tonumber(meta[8])) end
    -- Two losses become one gap. Who came in between is known here, and so has no way back.
    if gap_to > 0 and gap_to < first then
      local from, last = gap_to - meta[10], first - meta[10] - 1
      local first_byte, last_byte = math.floor(from / 8), math.floor(last / 8)
      local opening = bit.rshift(255, from % 8)
      local closing = bit.band(bit.lshift(255, 7 - last % 8), 255)
      local rest = ''
      if first_byte == last_byte then
        opening = bit.band(opening, closing)
      else
        rest = string.rep('\255', last_byte - first_byte - 1) .. string.char(closing)
      end
      local shared = string.byte(redis.call('GETRANGE', KEYS[3], first_byte, first_byte)) or 0
      redis.call('SETRANGE', KEYS[3], first_byte, string.char(bit.bor(shared, opening)) .. rest)
    end
    redis.call('HSET', KEYS[1], 'gap_from', gap_from, 'gap_to', start, 'gap_opens', now + gap_wait, 'gap_turns', 0)
    redis.call('HINCRBY', KEYS[1], 'restores', 1)
    -- Pulses since the file are lost too. Everyone in it counts as present, or the first to poll would overtake.
    if waiting > 0 then
      local slice = KEYS[4 + meta[7]]
      redis.call('BITOP', 'OR', slice, slice, KEYS[2])
    end
  end
  first = start
end
if waiting == 0 then redis.call('HSET', KEYS[1], 'head', first) end
redis.call('HSET', KEYS[1], 'life', life, 'next', first, 'end', stop, 'now', now, 'skew', now - clock)
redis.call('HINCRBY', KEYS[1], 'line_version', 1)
return { 'OK' }
