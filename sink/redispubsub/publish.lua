-- Publishes a batch of events, each at most once per window.
--
-- KEYS  one name per lane, with the lane as its hash tag: outbox:seen:{12}. The sets are KEYS[k]:<period>; they are not
--       declared because their names depend on the clock of this server, and they share the slot of KEYS[k].
-- ARGV  [1] the window in milliseconds, 0: remember nothing
--       [2] 10 bytes a delivery: index of its lane in KEYS, 1 if it has an ordering key or 0, that key
--       [3..] three a delivery: member (16 bytes event id, 8 bytes hash of destination and generation), channel, message
-- Reply {n, i, what, i, what, …}: n deliveries were handled; delivery i, from 1, was published unless it is listed with
--       what = 0 (copy refused), 1 (held back behind a failed event of its key) or the text of its error.
--
-- Time is cut into periods as long as the window. A member goes into the set of the current period and is looked for there
-- and in the one before, so it is remembered for one to two windows. Two sets and no key per event: 80 bytes an event
-- instead of 149, and faster (DESIGN §5). TIME is this server's, because the clocks of two relays differ.
--
-- An event must never be in a set without having been published: its next attempt would be refused as a copy, and it would
-- be lost. Nothing undoes what a script did before it failed, so whatever can fail comes before the member is added.

local call, try = redis.call, redis.pcall
local window, about = tonumber(ARGV[1]), ARGV[2]
local previous, current, expiry = {}, {}, 0

if window > 0 then
  local time = call('TIME')
  local period = math.floor((time[1] * 1000 + math.floor(time[2] / 1000)) / window)
  expiry = (period + 2) * window -- when this period's set is looked at for the last time
  for k, key in ipairs(KEYS) do
    previous[k] = key .. ':' .. period - 1
    current[k] = key .. ':' .. period
  end
end

local proven, expires = false, {}

-- prove runs every write that follows on an empty member, which stays in the set: a server that takes no writes (replica,
-- out of memory, failed snapshot, too few replicas) or a user without the rights ends the script here, with nothing
-- remembered or published. SADD is first because Redis asks about its memory only at the first write of a script (measured:
-- after SREM, SADD passes).
local function prove(set)
  call('SADD', set, '')
  call('SREM', set, '-')
  call('PEXPIREAT', set, expiry)
  proven = true
end

-- remember tells whether member was new in lane k.
local function remember(k, member)
  if call('SISMEMBER', previous[k], member) == 1 then return false end
  if not proven then prove(current[k]) end
  if call('SADD', current[k], member) == 0 then return false end
  if not expires[k] then
    call('PEXPIREAT', current[k], expiry)
    expires[k] = true
  end
  return true
end

local holder = nil -- the failed event's id by ordering key, once one has failed

local function order_key(i) return string.sub(about, i * 10 - 8, i * 10) end
local function event_id(i) return string.sub(ARGV[i * 3], 1, 16) end

-- held tells whether delivery i is of a later event than the failed one of its key.
local function held(i)
  local id = holder[order_key(i)]
  return id and id ~= event_id(i)
end

local reply = { 0 }
local function answer(i, what)
  reply[#reply + 1] = i
  reply[#reply + 1] = what
end

local n = (#ARGV - 2) / 3
for i = 1, n do
  local k, member = string.byte(about, i * 10 - 9), ARGV[i * 3]
  if holder and held(i) then
    answer(i, 1)
  elseif window > 0 and not remember(k, member) then
    answer(i, 0)
  else
    local published = try('PUBLISH', ARGV[i * 3 + 1], ARGV[i * 3 + 2])
    if type(published) == 'table' then
      if window > 0 then call('SREM', current[k], member) end
      answer(i, published.err)
      holder = holder or {}
      local key = order_key(i)
      if string.byte(key) == 1 then holder[key] = event_id(i) end
    end
  end
end
reply[1] = n
return reply
