-- Leaves a daemon's part at the exchange and reads all parts.
--
-- KEYS[1]  hash: daemon -> "<milliseconds of store time> <part>"
-- ARGV[1]  the daemon
-- ARGV[2]  its part
-- ARGV[3]  how old parts may get, milliseconds; older ones are taken off
-- ARGV[4]  how many parts there may be; with as many there, a new daemon's is read back and not left
-- Returns  daemon, age in milliseconds, part, daemon, ... , this daemon's as well
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all = redis.call('HGETALL', KEYS[1])
local reply, others, known = {ARGV[1], 0, ARGV[2]}, 0, false
for i = 1, #all, 2 do
    local space = string.find(all[i + 1], ' ', 1, true) or 1
    local age = now - (tonumber(string.sub(all[i + 1], 1, space - 1)) or 0)
    if all[i] == ARGV[1] then
        known = true
    elseif age > tonumber(ARGV[3]) then
        redis.call('HDEL', KEYS[1], all[i])
    else
        others = others + 1
        reply[#reply + 1] = all[i]
        reply[#reply + 1] = math.max(age, 0)
        reply[#reply + 1] = string.sub(all[i + 1], space + 1)
    end
end
if known or others < tonumber(ARGV[4]) then
    redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now) .. ' ' .. ARGV[2])
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return reply
