-- For wrk: each thread has one connection, sends one sentence after another, and checks each answer.
-- wrk ... -s serving.lua URL -- FILE, where FILE has alternating lines: the body of a request and its expected answer.

local threads = {}

function setup(thread)
  thread:set("number", #threads)
  table.insert(threads, thread)
end

function init(arguments)
  bodies, expected = {}, {}
  local file = assert(io.open(arguments[1], "r"))
  for body in file:lines() do
    table.insert(bodies, body)
    table.insert(expected, file:read("*l"))
  end
  file:close()
  -- Each thread starts at a different sentence, so that batches mix sentences of different lengths.
  at = (number * 37) % #bodies
  right, wrong = 0, 0
end

function request()
  at = at % #bodies + 1
  return wrk.format("POST", nil, { ["Content-Type"] = "application/json" }, bodies[at])
end

function response(status, headers, body)
  if status == 200 and string.find(body, expected[at], 1, true) then
    right = right + 1
  else
    wrong = wrong + 1
  end
end

function done(summary, latency, requests)
  local right, wrong = 0, 0
  for _, thread in ipairs(threads) do
    right = right + thread:get("right")
    wrong = wrong + thread:get("wrong")
  end
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"seconds": %f, "right": %d, "wrong": %d, "broken": %d, "p50": %f, "p95": %f, "p99": %f}\n',
    summary.duration / 1e6, right, wrong, errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50) / 1e3, latency:percentile(95) / 1e3, latency:percentile(99) / 1e3))
end
