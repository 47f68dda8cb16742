#!lua flags=no-writes
-- event_read: read several things at one moment where Redis refuses MULTI because it is full.
-- version 2 | any stage | reads | O(what is read)
--
-- Plain reads in MULTI cost less, so servers use this only after such a refusal.
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
-- KEYS 12 frozen     hash    place: its order, and the deadlines it had
-- ARGV 1 word        text …  for each command: how many words it has, then the words
--
-- REPLY READ reply …   the reply of each command
--
-- KEEPS all of it is of one moment, and nothing is written

local replies, command, missing = { 'READ' }, {}, 0
for i = 1, #ARGV do
  if missing == 0 then
    command, missing = {}, tonumber(ARGV[i])
  else
    command[#command + 1] = ARGV[i]
    missing = missing - 1
    if missing == 0 then replies[#replies + 1] = redis.call(unpack(command)) end
  end
end
return replies
