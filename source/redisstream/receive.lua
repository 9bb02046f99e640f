-- The entries of a group that nobody has acknowledged, whoever has read them, or else the next ones. So one batch is on its way
-- at a time, and no process overtakes another: what somebody has read less than ARGV[4] ms ago is his.
local first = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])[1]
if first and first[3] < tonumber(ARGV[4]) then return {} end
local pending = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', ARGV[3], 'STREAMS', KEYS[1], '0')
if #pending[1][2] > 0 then return pending[1][2] end
local fresh = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', ARGV[3], 'STREAMS', KEYS[1], '>')
return fresh and fresh[1][2] or {}
