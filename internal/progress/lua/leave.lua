-- Leaves a daemon's part at the exchange, and returns the newest summary of all parts. The daemon that leads makes it: the
-- first that asks while nobody does.
--
-- KEYS[1]  hash: daemon -> "<milliseconds of store time> <part>"
-- KEYS[2]  string: the daemon that leads; it expires
-- KEYS[3]  string: "<microseconds of store time> <daemon that led> <summary>"
-- ARGV[1]  the daemon
-- ARGV[2]  its part
-- ARGV[3]  how long parts are kept after the last one was left, milliseconds
-- ARGV[4]  how long a daemon leads that makes no summary, milliseconds
-- Returns  microseconds of store time, the daemon that leads, the summary as stored ("" if there is none, or this daemon leads)
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
local part = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)) .. ' ' .. ARGV[2]
redis.call('HSET', KEYS[1], ARGV[1], part)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local leader = redis.call('GET', KEYS[2])
if not leader then
    leader = ARGV[1]
    redis.call('SET', KEYS[2], leader, 'PX', ARGV[4])
end
if leader == ARGV[1] then
    return {now, leader, ''}
end
return {now, leader, redis.call('GET', KEYS[3]) or ''}
