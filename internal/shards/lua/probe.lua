-- Runs each command that the scripts of daemons call, on a key of its own.
--
-- KEYS[1]  a key of the shard that nothing else uses
-- Returns  what the server said of each command that it refused

local key = KEYS[1]
local refused = {}
local function try(command, ...)
    local answer = redis.pcall(command, ...)
    if type(answer) == 'table' and answer.err then
        refused[#refused + 1] = command .. ': ' .. answer.err
    end
end

try('time')
try('info', 'server')
try('set', key, '1', 'PX', '1000')
try('get', key)
try('mget', key)
try('exists', key)
try('pttl', key)
try('del', key)
try('hset', key, 'f', '1')
try('hget', key, 'f')
try('pexpire', key, '1000')
try('hgetall', key)
try('hlen', key)
try('hdel', key, 'f')
try('zadd', key, '1', 'f')
try('zcard', key)
try('zrange', key, '0', '-1')
try('zrangebyscore', key, '0', '1')
try('zrem', key, 'f')
return refused
