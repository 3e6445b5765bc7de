-- Keeps the highest revision of the catalog that was ever seen.
--
-- KEYS[1]  string: the revision
-- ARGV[1]  the revision that this daemon has
-- Returns  the highest one
local newest = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
local mine = tonumber(ARGV[1])
if mine > newest then
    redis.call('SET', KEYS[1], ARGV[1])
    newest = mine
end
return newest
