#!lua flags=allow-oom
-- event_forget: delete an event's keys, so that it is rebuilt from the database alone.
-- version 4 | stage 5 | writes | O(everything of the event)
--
-- For an operator who restored the database from a backup. No server may be running.
--
-- KEYS 1 meta        hash
-- KEYS 2 line        bitmap  places that wait
-- KEYS 3 policy      hash
-- KEYS 4 back        bitmap  places of the gap that may not return (again)
-- KEYS 5 passes      zset    place by deadline, ms
-- KEYS 6 limits      hash    place: latest moment its pass can be stretched to
-- KEYS 7 seats       bytes   a, h or s for each seat
-- KEYS 8 owners      hash    seat: place that holds or bought it
-- KEYS 9 versions    hash    seat: version of its last sale or cancel
-- KEYS 10 hold_ends  zset    seat by deadline, ms
-- KEYS 11 held       hash    place: the seats it holds
-- KEYS 12 members    hash    person: the place taken last
-- KEYS 13 tmp        bitmap
-- KEYS 14 pulse:0    bitmap  places heard from, slice 0
-- KEYS 15 pulse:1    bitmap
-- KEYS 16 pulse:2    bitmap
-- KEYS 17 pulse:3    bitmap
-- KEYS 18 pulse:4    bitmap
-- KEYS 19 requests   stream  orders to write, as they came
-- KEYS 20 pending    zset    order by arrival
-- KEYS 21 working    set     orders that are being written
-- KEYS 22 frozen     hash    place: its order, and the deadlines it had
-- KEYS 23 latest     zset    place by the latest moment that all its orders together can move its limit to, ms
-- KEYS 24 people     hash    place: the person who uses it
-- ARGV 1 end         int     end of the last block of places that the caller saw
--
-- REPLY FORGOTTEN   nothing of it is left
-- REPLY MOVED       places were handed out since: nothing was deleted
--
-- KEEPS no place is forgotten that the database does not know of

local META = unpack(KEYS)
local seen_end = tonumber(ARGV[1])
local block_end = tonumber(redis.call('HGET', META, 'end'))
if block_end and block_end > seen_end then return { 'MOVED' } end
redis.call('DEL', unpack(KEYS))
return { 'FORGOTTEN' }
