-- The command of internal/redisscript/script.lua: the destination is the stream. The value is the text of the entry's only
-- field, event, or it begins with the byte 0xdd and is a MessagePack array of the entry's fields and values. Unpacked, an XADD
-- of 800 bytes takes 9.7 µs and else 5.4 (measured). ARGV ends with four words:
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

-- unpacked appends an entry with all of the value's fields.
local function unpacked(stream, value)
  local fields = cmsgpack.unpack(value)
  arguments[1] = stream
  for f = 1, #fields do arguments[before + f] = fields[f] end
  return redis.pcall(command, unpack(arguments, 1, before + #fields))
end

local function send(_, stream, value)
  local ran, id = true, nil
  if string.byte(value) == 0xdd then
    ran, id = pcall(unpacked, stream, value)
  else
    arguments[1], arguments[before + 1], arguments[before + 2] = stream, 'event', value
    id = redis.pcall(command, unpack(arguments, 1, before + 2))
  end
  if not ran then
    if type(id) == 'table' then return id end
    return { err = 'FIELDS ' .. tostring(id) }
  end
  if not id then return { err = 'NOSTREAM' } end
  return id
end
