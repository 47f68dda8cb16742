#!lua
-- policy_set: change what an operator can change live; pause, resume and close.
-- version 3 | any stage | writes | O(1)
--
-- KEYS 1 meta    hash
-- KEYS 2 line    bitmap  places that wait
-- KEYS 3 policy  hash
-- ARGV 1 seed    text    names a configuration: each is applied once, so that live changes outlast a restart; empty
--                        when an operator asks
-- ARGV 2 change  field value …   settings, state, and reason: what pages tell visitors about a pause
--
-- REPLY OK             done, or this seed was applied before
-- REPLY REFUSED rule   the rule that would be broken; nothing was changed
-- REPLY UNREADY        the event is not here, or only a part of it
--
-- KEEPS a pass lasts as long as a hold; a sync round comes before a hold ends

local META, LINE, POLICY = unpack(KEYS)
local seed = ARGV[1]
local waiting = redis.call('HGET', META, 'waiting')

-- shared: readiness
-- An event is ready if it knows how many people wait and, if anyone does, has a line.
waiting = tonumber(waiting)
if not waiting or (waiting > 0 and redis.call('EXISTS', LINE) == 0) then return { 'UNREADY' } end

if seed ~= '' and redis.call('HGET', POLICY, 'seed') == seed then return { 'OK' } end

local lowest = { interval_ms = 1, batch = 0, max_active = 0, max_queue = 0, active_ttl_ms = 1, queue_ttl_ms = 4,
  hold_ttl_ms = 1, sync_interval_ms = 1, seats_per_pass = 1 }
local states = { open = true, paused = true, closed = true }
local policy, changes, state, reason = {}, {}, nil, nil
local stored = redis.call('HGETALL', POLICY)
for i = 1, #stored, 2 do
  local field, value = stored[i], stored[i + 1]
  policy[field] = value
end

for i = 2, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  if field == 'state' then
    if not states[value] then return { 'REFUSED', 'state is open, paused or closed' } end
    state = value
  elseif field == 'reason' then
    if #(value or '') > 600 then return { 'REFUSED', 'reason is 600 bytes at most' } end
    reason = value or ''
  elseif not lowest[field] then
    return { 'REFUSED', 'there is no setting ' .. field }
  elseif not string.match(value or '', '^%d+$') or #value > 12 or tonumber(value) < lowest[field] then
    return { 'REFUSED', field .. ' is a whole number of at least ' .. lowest[field] }
  else
    policy[field] = value
    changes[#changes + 1], changes[#changes + 2] = field, value
  end
end
if tonumber(policy.active_ttl_ms) < tonumber(policy.hold_ttl_ms) then
  return { 'REFUSED', 'active_ttl_ms must be at least hold_ttl_ms' }
end
if tonumber(policy.sync_interval_ms) >= tonumber(policy.hold_ttl_ms) then
  return { 'REFUSED', 'sync_interval_ms must be less than hold_ttl_ms' }
end

if seed ~= '' then changes[#changes + 1], changes[#changes + 2] = 'seed', seed end
if #changes > 0 then redis.call('HSET', POLICY, unpack(changes)) end
if state then
  redis.call('HSET', META, 'state', state)
  -- A reason belongs to one pause: a new state without a reason clears the old one.
  if not reason then reason = '' end
end
if reason then redis.call('HSET', META, 'reason', reason) end
redis.call('HINCRBY', META, 'policy_version', 1)
return { 'OK' }
