#!lua
-- line_pulse: mark many places alive; let places of the gap return.
-- version 1 | stage 1 | writes | O(places) + O(line) for a dense part
--
-- KEYS 1 meta     hash
-- KEYS 2 line     bitmap  who waits
-- KEYS 3 back     bitmap  places of the gap that may not return (again)
-- KEYS 4 tmp      bitmap
-- KEYS 5 pulse:0  bitmap  who was heard from, slice 0
-- KEYS 6 pulse:1  bitmap
-- KEYS 7 pulse:2  bitmap
-- KEYS 8 pulse:3  bitmap
-- KEYS 9 pulse:4  bitmap
-- ARGV 1 from     int     place of the dense part's first bit, a multiple of 8
-- ARGV 2 dense    bytes   a bitmap of places, none of the gap; may be empty
-- ARGV 3 place    int …   single places, up to 1,000
--
-- REPLY OK returned   how many places of the gap came back
-- REPLY UNREADY       the event is not here, or only a part of it
--
-- KEEPS a place returns at most once a restore

local meta = redis.call('HMGET', KEYS[1], 'now', 'skew', 'waiting', 'base', 'next', 'head', 'slice', 'gap_from', 'gap_to')
local waiting = tonumber(meta[3])
if not waiting or (waiting > 0 and redis.call('EXISTS', KEYS[2]) == 0) then return { 'UNREADY' } end

local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = math.max(clock + meta[2], tonumber(meta[1]))

local base, next_place, head = tonumber(meta[4]), tonumber(meta[5]), tonumber(meta[6])
local gap_from, gap_to = tonumber(meta[8]), tonumber(meta[9])
local slice = KEYS[5 + meta[7]]

local from, dense = tonumber(ARGV[1]), ARGV[2]
if from < base then
  dense = string.sub(dense, (base - from) / 8 + 1)
  from = base
end
if dense ~= '' then
  redis.call('SETRANGE', KEYS[4], (from - base) / 8, dense)
  redis.call('BITOP', 'OR', slice, slice, KEYS[4])
  redis.call('DEL', KEYS[4])
end

local returned, marks = 0, {}
for i = 3, #ARGV do
  local place = tonumber(ARGV[i])
  if place >= base and place < next_place then
    local at = place - base
    local n = #marks
    marks[n + 1], marks[n + 2], marks[n + 3], marks[n + 4] = 'SET', 'u1', at, 1
    if place >= gap_from and place < gap_to
      and redis.call('GETBIT', KEYS[2], at) == 0 and redis.call('SETBIT', KEYS[3], at, 1) == 0 then
      redis.call('SETBIT', KEYS[2], at, 1)
      if waiting + returned == 0 then head = place end
      head = math.min(head, place)
      returned = returned + 1
    end
  end
end
if #marks > 0 then redis.call('BITFIELD', slice, unpack(marks)) end

if returned > 0 then
  redis.call('HSET', KEYS[1], 'waiting', waiting + returned, 'head', head)
  redis.call('HINCRBY', KEYS[1], 'returned', returned)
  redis.call('HINCRBY', KEYS[1], 'line_version', 1)
end
redis.call('HSET', KEYS[1], 'now', now, 'skew', now - clock)
return { 'OK', returned }
