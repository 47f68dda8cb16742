-- The one request generator of `make bench`: both sides of every ratio are driven by it.
--
--   wrk -s load.lua URL -- KIND THREADS START COUNT TOKENS RATE
--
-- KIND     ceiling, poll, enter, mixed (9 polls, then 1 entry), seats, hold, buy or order (buy, and write it later)
-- THREADS  as many as wrk has: each takes its own part of the tokens
-- START    where in the file of tokens to begin
-- COUNT    hold, buy and order: this many tokens from START on, each used once; token n of the file takes seat n
-- TOKENS   file of tokens, one a line
-- RATE     requests a second, of all threads; 0: each connection asks again as soon as it was answered
--
-- Each request is put together in the same way, with a token in it, whether the route needs one or not: the generator
-- costs the same for all. Prints one line of JSON at the end.

local ffi = require("ffi")
ffi.cdef("typedef struct { long seconds; long nanoseconds; } zt_timespec; int clock_gettime(int, zt_timespec *);")

local LINE = 37 -- a token and its line feed

local threads = {}

function setup(thread)
  thread:set("id", #threads)
  threads[#threads + 1] = thread
end

local tokens, count

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local function clock()
  local now = ffi.new("zt_timespec")
  ffi.C.clock_gettime(0, now)
  return tonumber(now.seconds) + tonumber(now.nanoseconds) / 1e9
end

local function common_divisor(a, b)
  while b > 0 do a, b = b, a % b end
  return a
end

-- All tokens of this thread, out of order as visitors poll, and then again.
local function endless(share, start)
  local own = math.floor(count / share)
  local step = math.max(1, math.floor(own * 0.618))
  while common_divisor(own, step) > 1 do step = step + 1 end
  local at = start % own
  return function()
    at = (at + step) % own
    local first = (at * share + id) * LINE
    return tokens:sub(first + 1, first + 36)
  end
end

local function shape(method, path, more)
  local host = wrk.host .. ":" .. wrk.port
  return method .. " " .. path, " HTTP/1.1\r\nHost: " .. host .. "\r\n" .. (more or "") .. "\r\n"
end

-- A token stands at the end of the path, or after it, where it is not looked at.
local function repeated(kind, share, start)
  local next_token = endless(share, start)
  local get, rest = shape("GET", ({ ceiling = "/livez?", seats = "/api/seats?" })[kind] or "/api/queues/tokens/")
  local post, empty = shape("POST", "/api/queues/tokens?", "Content-Length: 0\r\n")
  local turn = 0
  local entries = ({ enter = 1, mixed = 10 })[kind] or 0
  return function()
    turn = turn + 1
    if turn == entries then
      turn = 0
      return post .. next_token() .. empty
    end
    return get .. next_token() .. rest
  end
end

-- Each token once. Then this thread has nothing left to do, and stops; `began` and `ended` are global for `done`.
local function once(kind, share, start, most)
  local n = start + id
  local host = wrk.host .. ":" .. wrk.port
  return function()
    if not began then began = clock() end
    if n >= start + most then
      if not ended then
        ended = clock()
        wrk.thread:stop()
      end
      return "GET /livez HTTP/1.1\r\nHost: " .. host .. "\r\n\r\n"
    end
    local token = tokens:sub(n * LINE + 1, n * LINE + 36)
    local seat = n + 1
    n = n + share
    if kind == "hold" then
      return "POST /api/seats/" .. seat .. "/hold HTTP/1.1\r\nHost: " .. host .. "\r\nX-Queue-Token: " .. token
        .. "\r\nContent-Length: 0\r\n\r\n"
    end
    local body = '{"seatNumber":' .. seat .. "}"
    local later = kind == "order" and "\r\nPrefer: respond-async" or ""
    return "POST /api/tickets HTTP/1.1\r\nHost: " .. host .. "\r\nX-Queue-Token: " .. token .. later
      .. "\r\nContent-Type: application/json\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
  end
end

function init(args)
  local kind, share, start, most = args[1], tonumber(args[2]), tonumber(args[3]), tonumber(args[4])
  tokens = read(args[5])
  count = #tokens / LINE
  assert(count >= share and count == math.floor(count), args[5] .. " is no file of tokens")
  local rate = tonumber(args[6])
  if rate > 0 then
    -- Before each request wrk calls this function, and waits for as many ms as it returns. They are whole ones, so they are
    -- rounded up or down by chance. A thread that is late makes up for no more than 50 ms.
    local due = clock()
    delay = function()
      local now = clock()
      due = math.max(due + share / rate, now - 0.05)
      return math.max(0, math.floor((due - now) * 1000 + math.random()))
    end
  end
  if kind == "hold" or kind == "buy" or kind == "order" then
    request = once(kind, share, start, most)
  else
    request = repeated(kind, share, start)
  end
end

function done(summary, latency)
  -- Threads that ran out of tokens stopped before wrk did: the time counts from the first start to the last stop.
  local first, last, stopped = math.huge, 0, 0
  for _, thread in ipairs(threads) do
    local from, to = thread:get("began"), thread:get("ended")
    if from then first = math.min(first, from) end
    if to then last, stopped = math.max(last, to), stopped + 1 end
  end
  local micros = summary.duration
  if stopped == #threads then micros = (last - first) * 1e6 end
  local errors = summary.errors
  print(string.format(
    '{"requests":%d,"micros":%.0f,"p50":%d,"p99":%d,"status":%d,"socket":%d,"timeout":%d,"bytes":%.0f}',
    summary.requests, micros, latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write, errors.timeout, summary.bytes))
end
