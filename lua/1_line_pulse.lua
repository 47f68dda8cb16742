#!lua
-- line_pulse: mark many places alive; let places of the gap return.
-- version 2 | stage 1 | writes | O(places) + O(line) for a dense part
--
-- KEYS 1 meta     hash
-- KEYS 2 line     bitmap  places that wait
-- KEYS 3 back     bitmap  places of the gap that may not return (again)
-- KEYS 4 tmp      bitmap
-- KEYS 5 pulse:0  bitmap  places heard from, slice 0
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

local META, LINE, BACK, TMP = unpack(KEYS)
local PULSES = { unpack(KEYS, 5) }
local from, dense = tonumber(ARGV[1]), ARGV[2]
local last_now, skew, waiting, base, next_place, head, slice, gap_from, gap_to = unpack(redis.call('HMGET', META,
  'now', 'skew', 'waiting', 'base', 'next', 'head', 'slice', 'gap_from', 'gap_to'))

-- shared: readiness
-- An event is ready if it knows how many people wait and, if anyone does, has a line.
waiting = tonumber(waiting)
if not waiting or (waiting > 0 and redis.call('EXISTS', LINE) == 0) then return { 'UNREADY' } end

-- shared: clock
-- The event's time never goes back: if the clock of Redis steps back, `skew` makes up for it.
local seconds, micros = unpack(redis.call('TIME'))
local clock = seconds * 1000 + math.floor(micros / 1000)
local now = math.max(clock + skew, tonumber(last_now))

base, next_place, head = tonumber(base), tonumber(next_place), tonumber(head)
gap_from, gap_to = tonumber(gap_from), tonumber(gap_to)
local pulse = PULSES[slice + 1]

-- Places before `base` are gone.
if from < base then
  dense = string.sub(dense, (base - from) / 8 + 1)
  from = base
end
if dense ~= '' then
  redis.call('SETRANGE', TMP, (from - base) / 8, dense)
  redis.call('BITOP', 'OR', pulse, pulse, TMP)
  redis.call('DEL', TMP)
end

local returned, marks = 0, {}
for i = 3, #ARGV do
  local place = tonumber(ARGV[i])
  if place >= base and place < next_place then
    local at = place - base
    local n = #marks
    marks[n + 1], marks[n + 2], marks[n + 3], marks[n + 4] = 'SET', 'u1', at, 1
    if place >= gap_from and place < gap_to
      and redis.call('GETBIT', LINE, at) == 0 and redis.call('SETBIT', BACK, at, 1) == 0 then
      redis.call('SETBIT', LINE, at, 1)
      if waiting + returned == 0 then head = place end
      head = math.min(head, place)
      returned = returned + 1
    end
  end
end
if #marks > 0 then redis.call('BITFIELD', pulse, unpack(marks)) end

if returned > 0 then
  redis.call('HSET', META, 'waiting', waiting + returned, 'head', head)
  redis.call('HINCRBY', META, 'returned', returned)
  redis.call('HINCRBY', META, 'line_version', 1)
end
redis.call('HSET', META, 'now', now, 'skew', now - clock)
return { 'OK', returned }
