-- Publishes a batch of events, each at most once per window. What stands before this text defines command and send: send(command, to,
-- value) publishes one event, and returns a table with the field err if Redis refuses it. It may be redis.pcall itself, which
-- is one call of Lua less an event.
--
-- KEYS  one name per lane, of one slot: outbox:seen:{12}. The sets are KEYS[k]:<period>:<number>; they are not
--       declared because their names depend on the clock of this server, and they share the slot of KEYS[k].
-- ARGV  [1] the window in milliseconds, 0: remember nothing
--       [2] the shortest period in milliseconds
--       [3] 10 bytes a delivery: index of its lane in KEYS, 1 if it has an ordering key or 0, that key
--       [4..] three a delivery: member (16 bytes event id, 8 bytes hash of origin, destination and generation), destination, value
--       and after them what send takes from there.
--       Without deliveries [4] is any text: the call then only proves that this server takes writes for all KEYS.
-- Reply {n, i, what, i, what, …}: n deliveries were handled; delivery i, from 1, was published unless it is listed with
--       what = 0 (copy refused), 1 (held back behind a failed event of its key) or the text of its error.
--
-- Time is cut into periods: the shortest, and others of which each is four times as long as the one before. All begin at
-- multiples of their length, so that every relay has the same ones whatever its window. A member goes into the set of now
-- of the longest period that fits into the window. It is looked for there, in those before that the window reaches into, and in the sets of
-- the other periods, where relays with another window have put theirs. So it is remembered for a window and at most one
-- period, and two relays know of each other's for the shorter of their windows. TIME is this server's, because the clocks
-- of two relays differ. Why the periods are these: docs/adr/0019.
--
-- An event must never be in a set without having been published: its next attempt would be refused as a copy, and it would
-- be lost. Nothing undoes what a script did before it failed, so whatever can fail comes before the member is added.

local call = redis.call
local window, about = tonumber(ARGV[1]), ARGV[3]
local n = #about / 10

local now, expiry = 0, 0 -- expiry is when the set of now is of no use any more
local current = ''       -- the end of its name
local before, others = {}, {} -- the ends of the names of the sets to look into beside it

local levels, factor = 4, 4
if window > 0 then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
  local period, own = tonumber(ARGV[2]), tonumber(ARGV[2])
  for level = 2, levels do
    if own * factor <= window then own = own * factor end
  end
  for level = 1, levels do
    local number, most, list, first = math.floor(now / period), factor * period, others, 0
    if period == own then
      current, expiry = ':' .. period .. ':' .. number, (number + 1) * period + window
      most, list, first = window, before, 1
    end
    for back = first, math.ceil(math.min(window, most) / period) do
      list[#list + 1] = ':' .. period .. ':' .. number - back
    end
    period = period * factor
  end
end

-- keep lets a set live until its expiry, or longer if a relay with a longer window needs it for longer.
local function keep(set, always)
  local left = call('PTTL', set)
  if always or now + left < expiry then call('PEXPIREAT', set, math.max(expiry, now + left)) end
end

local proven, kept = false, {}

-- prove runs every write that follows on an empty member, which stays in the set: a server that takes no writes (replica,
-- out of memory, failed snapshot, too few replicas) or a user without the rights ends the script here, with nothing
-- remembered or published. SADD is first because Redis asks about its memory only at the first write of a script (measured:
-- after SREM, SADD passes).
local function prove(set)
  call('SADD', set, '')
  call('SREM', set, '-')
  keep(set, true)
  proven = true
end

local sets = {} -- of now, by lane
if window > 0 then
  for k, key in ipairs(KEYS) do sets[k] = key .. current end
end

local seen = {} -- members found in an older set, or in one of another period

local function look(set, members)
  for m, found in ipairs(call('SMISMEMBER', set, unpack(members))) do
    if found == 1 then seen[members[m]] = true end
  end
end

if window > 0 and n > 0 then
  local members = {} -- by lane
  for k = 1, #KEYS do members[k] = {} end
  for i = 1, n do
    local list = members[string.byte(about, i * 10 - 9)]
    list[#list + 1] = ARGV[i * 3 + 1]
  end
  local foreign = {}
  for k, key in ipairs(KEYS) do
    for _, name in ipairs(before) do look(key .. name, members[k]) end
    for o, name in ipairs(others) do foreign[o] = key .. name end
    if call('EXISTS', unpack(foreign)) > 0 then
      for _, set in ipairs(foreign) do look(set, members[k]) end
    end
  end
elseif window > 0 then
  for _, set in ipairs(sets) do prove(set) end
end

-- remember tells whether member was new in lane k.
local function remember(k, member)
  if seen[member] then return false end
  if not proven then prove(sets[k]) end
  if call('SADD', sets[k], member) == 0 then return false end
  if not kept[k] then
    keep(sets[k])
    kept[k] = true
  end
  return true
end

local holder = nil -- the failed event's id by ordering key, once one has failed

local function order_key(i) return string.sub(about, i * 10 - 8, i * 10) end
local function event_id(i) return string.sub(ARGV[i * 3 + 1], 1, 16) end

-- held tells whether delivery i is of a later event than the failed one of its key.
local function held(i)
  local id = holder[order_key(i)]
  return id and id ~= event_id(i)
end

local reply = { n }
local function answer(i, what)
  reply[#reply + 1] = i
  reply[#reply + 1] = what
end

for i = 1, n do
  local k, member = string.byte(about, i * 10 - 9), ARGV[i * 3 + 1]
  if holder and held(i) then
    answer(i, 1)
  elseif window > 0 and not remember(k, member) then
    answer(i, 0)
  else
    local published = send(command, ARGV[i * 3 + 2], ARGV[i * 3 + 3])
    if type(published) == 'table' then
      if window > 0 then call('SREM', sets[k], member) end
      answer(i, published.err)
      holder = holder or {}
      local key = order_key(i)
      if string.byte(key) == 1 then holder[key] = event_id(i) end
    end
  end
end
return reply
