-- Stores a summary of all parts, if its maker still leads, which it then does for longer.
--
-- KEYS[1]  hash: daemon -> part, as in leave.lua
-- KEYS[2]  string: the daemon that leads
-- KEYS[3]  string: the summary
-- ARGV[1]  the daemon
-- ARGV[2]  "<microseconds of store time> <daemon> <summary>"
-- ARGV[3]  how long the summary is kept, milliseconds
-- ARGV[4]  how long a daemon leads that makes no summary, milliseconds
-- ARGV[5]  and further: daemons whose parts are too old, which are removed
-- Returns  1, or 0 if another daemon leads
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
    return 0
end
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
for i = 5, #ARGV do
    redis.call('HDEL', KEYS[1], ARGV[i])
end
return 1
