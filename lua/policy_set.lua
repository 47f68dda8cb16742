#!lua flags=allow-oom
-- policy_set: put settings in force, and pause, resume or close.
-- version 6 | any stage | writes | O(1)
--
-- KEYS 1 meta     hash
-- KEYS 2 line     bitmap  places that wait
-- KEYS 3 policy   hash
-- ARGV 1 version  int     of what operators decided, counted by the database: an older decision changes nothing
-- ARGV 2 seed     text    names a server's configuration: under the same version, another one replaces it
-- ARGV 3 change   field value …   settings, state, and reason: what pages tell visitors about a pause
--
-- REPLY OK             these settings are in force, or newer ones
-- REPLY REFUSED rule   the rule that would be broken; nothing was changed
-- REPLY UNREADY        the event is not here, or only a part of it
--
-- KEEPS a pass lasts as long as a hold; a sync round comes before a hold ends; nobody who polls as told is swept because
--       the queue TTL became shorter

local META, LINE, POLICY = unpack(KEYS)
local version, seed = tonumber(ARGV[1]), ARGV[2]
local last_now, skew, waiting = unpack(redis.call('HMGET', META, 'now', 'skew', 'waiting'))

-- shared: readiness
-- An event is ready if it knows how many people wait and, if anyone does, has a line.
waiting = tonumber(waiting)
if not waiting or (waiting > 0 and redis.call('EXISTS', LINE) == 0) then return { 'UNREADY' } end

-- shared: clock
-- The event's time never goes back: if the clock of Redis steps back, `skew` makes up for it.
local seconds, micros = unpack(redis.call('TIME'))
local clock = seconds * 1000 + math.floor(micros / 1000)
local now = math.max(clock + skew, tonumber(last_now))

local lowest = { interval_ms = 1, batch = 0, max_active = 0, max_queue = 0, active_ttl_ms = 1, queue_ttl_ms = 4,
  hold_ttl_ms = 1, sync_interval_ms = 1, seats_per_pass = 1, tickets_per_person = 0 }
local states = { open = true, paused = true, closed = true }
local policy, changes, state, reason = {}, {}, nil, nil
local stored = redis.call('HGETALL', POLICY)
for i = 1, #stored, 2 do
  local field, value = stored[i], stored[i + 1]
  policy[field] = value
end
local in_force = tonumber(policy.version) or 0
if version < in_force or (version == in_force and policy.seed == seed) then return { 'OK' } end

local queue_ttl_ms = tonumber(policy.queue_ttl_ms)
for i = 3, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  if field == 'state' then
    if not states[value] then return { 'REFUSED', 'state is open, paused or closed' } end
    state = value
  elseif field == 'reason' then
    if #(value or '') > 4000 then return { 'REFUSED', 'reason is 4000 bytes at most' } end
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

-- People poll as they were told last. If the queue TTL becomes shorter, the ring turns as slowly as before for one old TTL.
local slow_ttl_ms, slow_until = tonumber(policy.slow_ttl_ms) or 0, tonumber(policy.slow_until) or 0
if tonumber(policy.queue_ttl_ms) < queue_ttl_ms then
  slow_ttl_ms = math.max(queue_ttl_ms, now < slow_until and slow_ttl_ms or 0)
  slow_until = math.max(now + queue_ttl_ms, slow_until)
end

redis.call('HSET', POLICY, 'version', version, 'seed', seed, 'slow_ttl_ms', slow_ttl_ms, 'slow_until', slow_until,
  unpack(changes))
if state then
  redis.call('HSET', META, 'state', state)
  -- A reason belongs to one pause: a new state without a reason clears the old one.
  if not reason then reason = '' end
end
if reason then redis.call('HSET', META, 'reason', reason) end
redis.call('HSET', META, 'now', now, 'skew', now - clock)
redis.call('HINCRBY', META, 'policy_version', 1)
return { 'OK' }
