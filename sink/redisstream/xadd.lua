-- The command of internal/redisscript/script.lua: the destination is the stream, the value a MessagePack array of the entry's
-- fields and values. ARGV ends with four words:
--
--   '1' if a stream that does not exist is made, or ''
--   'MAXLEN', 'MINID' or '' for no trimming
--   '~' or '='
--   how many entries stay, or for how many milliseconds
--
-- send must not fail as a whole: its delivery is remembered already, and would be refused as a copy when it comes again. unpack
-- does, with more than some 8000 fields.

local create, strategy, exactness, bound = ARGV[#ARGV - 3], ARGV[#ARGV - 2], ARGV[#ARGV - 1], ARGV[#ARGV]

local arguments = { '' } -- of XADD; the first is the stream
if create ~= '1' then arguments[#arguments + 1] = 'NOMKSTREAM' end
if strategy == 'MINID' then
  local time = redis.call('TIME')
  bound = string.format('%.0f', math.max(0, time[1] * 1000 + math.floor(time[2] / 1000) - bound))
end
if strategy ~= '' then
  arguments[#arguments + 1] = strategy
  arguments[#arguments + 1] = exactness
  arguments[#arguments + 1] = bound
end
arguments[#arguments + 1] = '*'
local before = #arguments

local command = 'XADD'

local function xadd(stream, value)
  local fields = cmsgpack.unpack(value)
  arguments[1] = stream
  for f = 1, #fields do arguments[before + f] = fields[f] end
  return redis.pcall(command, unpack(arguments, 1, before + #fields))
end

local function send(_, stream, value)
  local ran, id = pcall(xadd, stream, value)
  if not ran then
    if type(id) == 'table' then return id end
    return { err = 'FIELDS ' .. tostring(id) }
  end
  if not id then return { err = 'NOSTREAM' } end
  return id
end
