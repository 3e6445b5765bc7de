-- Ends the lead of a daemon that stops: another one leads from its next exchange on.
--
-- KEYS[1]  string: the daemon that leads
-- ARGV[1]  the daemon that stops
-- Returns  1, or 0 if another daemon leads, or none
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return 0
end
return redis.call('PEXPIRE', KEYS[1], 0)
