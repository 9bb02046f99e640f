-- The command of internal/redisscript/script.lua: the destination is the channel, the value the message.
local send, command = redis.pcall, 'PUBLISH'
