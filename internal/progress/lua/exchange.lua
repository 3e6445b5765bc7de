-- Leaves a daemon's part on the board and reads all parts.
--
-- KEYS[1]  hash: daemon -> "<milliseconds of store time> <part>"
-- ARGV[1]  the daemon
-- ARGV[2]  its part
-- ARGV[3]  how old parts may get, milliseconds; older ones are taken off
-- ARGV[4]  how many parts there may be; with as many on the board, a new daemon's is not left there
-- Returns  daemon, age in milliseconds, part, daemon, ... , this daemon's as well
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 or redis.call('HLEN', KEYS[1]) < tonumber(ARGV[4]) then
    redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now) .. ' ' .. ARGV[2])
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local all, reply = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
    local space = string.find(all[i + 1], ' ', 1, true)
    local age = now - (tonumber(string.sub(all[i + 1], 1, (space or 1) - 1)) or 0)
    if age > tonumber(ARGV[3]) or not space then
        redis.call('HDEL', KEYS[1], all[i])
    else
        reply[#reply + 1] = all[i]
        reply[#reply + 1] = age
        reply[#reply + 1] = string.sub(all[i + 1], space + 1)
    end
end
return reply
