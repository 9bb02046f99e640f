-- Publishes a batch of events, each at most once per window. What stands before this text defines command and send:
-- send(command, to, value) publishes one event, and returns a table with the field err if Redis refuses it. It may be
-- redis.pcall itself, which is one call of Lua less an event.
--
-- KEYS  one name per lane, of one slot: outbox:seen:{12}. The sets are KEYS[k]:<period>:<number>; they are not
--       declared because their names depend on the clock of this server, and they share the slot of KEYS[k].
-- ARGV  [1] the window in milliseconds, 0: remember nothing
--       [2] the shortest period in milliseconds
--       [3] 12 bytes a delivery: index of its lane in KEYS, index of its member below (2 bytes), 1 if it has an
--           ordering key or 0, that key
--       [4] 2 bytes a lane: how many of the members are its own
--       [5..] a member a delivery, lane by lane: 16 bytes event id, 8 bytes hash of origin, destination and generation
--       then two a delivery: destination, value
--       and after them what send takes from there.
--       Without deliveries [5] is any text: the call then only proves that this server takes writes for all KEYS.
-- Reply {n, i, what, i, what, …}: n deliveries were handled; delivery i, from 1, was published unless it is listed
--       with what = 0 (copy refused), 1 (held back behind a failed event of its key) or the text of its error.
--
-- Time is cut into periods: the shortest, and others of which each is four times as long as the one before. All begin
-- at multiples of their length, so that every relay has the same ones whatever its window. A member goes into the set
-- of now of the longest period that fits into the window. It is looked for there, in those before that the window
-- reaches into, and in the sets of the other periods, where relays with another window have put theirs. So it is
-- remembered for a window and at most one period, and two relays know of each other's for the shorter of their windows.
-- TIME is this server's, because the clocks of two relays differ. Why the periods are these: docs/adr/0005.
--
-- An event must never be in a set without having been published: its next attempt would be refused as a copy, and it
-- would be lost. Redis undoes nothing of a script that fails. So all members are added before the first event is
-- published, and taken out again if one cannot be. After that only send can fail, and its delivery is forgotten.
--
-- Sets are asked and filled a lane at a time: a call of Redis costs more than what it does for a member (docs/adr/0005).

local call = redis.call
local window, about, counts = tonumber(ARGV[1]), ARGV[3], ARGV[4]
local n = #about / 12
local members = 4         -- member m is ARGV[members + m]
local values = members + n -- the two of delivery i begin at ARGV[values + 2 * i - 1]

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

-- prove runs every write that follows on an empty member, which stays in the set: a server that takes no writes (replica,
-- out of memory, failed snapshot, too few replicas) or a user without the rights ends the script here, with nothing
-- remembered or published. SADD is first because Redis asks about its memory only at the first write of a script (measured:
-- after SREM, SADD passes).
local function prove(set)
  call('SADD', set, '')
  call('SREM', set, '-')
  keep(set, true)
end

local sets = {} -- of now, by lane
if window > 0 then
  for k, key in ipairs(KEYS) do sets[k] = key .. current end
end

local known = nil  -- members published before, once there is one
local broken = nil -- the error of a set that cannot be asked, with its name

local function look(set, from, to)
  local answers = redis.pcall('SMISMEMBER', set, unpack(ARGV, from, to))
  if answers.err then
    broken = { err = answers.err .. ': ' .. set }
    return
  end
  for m, found in ipairs(answers) do
    if found == 1 then
      known = known or {}
      known[ARGV[from + m - 1]] = true
    end
  end
end

local from, to = {}, {} -- where in ARGV the members of a lane are

local function look_everywhere()
  local foreign, last = {}, members
  for k, key in ipairs(KEYS) do
    local high, low = string.byte(counts, k * 2 - 1, k * 2)
    from[k], to[k] = last + 1, last + high * 256 + low
    last = to[k]
    look(sets[k], from[k], to[k])
    for _, name in ipairs(before) do look(key .. name, from[k], to[k]) end
    for o, name in ipairs(others) do foreign[o] = key .. name end
    if call('EXISTS', unpack(foreign)) > 0 then
      for _, set in ipairs(foreign) do look(set, from[k], to[k]) end
    end
  end
end

-- new returns the members of lane k that are not known.
local function new(k)
  if not known then return ARGV, from[k], to[k] end
  local list = {}
  for m = from[k], to[k] do
    if not known[ARGV[m]] then list[#list + 1] = ARGV[m] end
  end
  return list, 1, #list
end

local twice = false -- the call has two deliveries with one member

local function remember()
  local proven = false
  for k, set in ipairs(sets) do
    local list, first, last = new(k)
    if first <= last then
      if not proven then prove(set) end
      proven = true
      if call('SADD', set, unpack(list, first, last)) <= last - first then twice = true end
      keep(set)
    end
  end
end

local function forget()
  for k, set in ipairs(sets) do
    local list, first, last = new(k)
    if first <= last then redis.pcall('SREM', set, unpack(list, first, last)) end
  end
end

if window > 0 and n > 0 then
  look_everywhere()
  if broken then return broken end
  local remembered, why = pcall(remember)
  if not remembered then
    forget()
    return type(why) == 'table' and why or { err = why }
  end
elseif window > 0 then
  for _, set in ipairs(sets) do prove(set) end
end

local holder = nil -- the failed event's id by ordering key, once one has failed

local function lane(i) return string.byte(about, i * 12 - 11) end
local function order_key(i) return string.sub(about, i * 12 - 8, i * 12) end

local function member(i)
  local high, low = string.byte(about, i * 12 - 10, i * 12 - 9)
  return ARGV[members + high * 256 + low]
end

local function event_id(i) return string.sub(member(i), 1, 16) end

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

-- unpublished takes the member of delivery i out of its set.
local function unpublished(i)
  if window > 0 and not (known and known[member(i)]) then call('SREM', sets[lane(i)], member(i)) end
end

for i = 1, n do
  if holder and held(i) then
    unpublished(i)
    answer(i, 1)
  elseif known and known[member(i)] then
    answer(i, 0)
  else
    local published = send(command, ARGV[values + i * 2 - 1], ARGV[values + i * 2])
    if type(published) == 'table' then
      unpublished(i)
      answer(i, published.err)
      holder = holder or {}
      local key = order_key(i)
      if string.byte(key) == 1 then holder[key] = event_id(i) end
    elseif twice then
      known = known or {}
      known[member(i)] = true
    end
  end
end
return reply
