-- Reports the gates of destinations that were changed after a time, those changed first first, and changes nothing.
--
-- KEYS  1 clock, 2 and 3 as in shut.lua
-- ARGV  1 header, 2 after when, 3 how many at most
-- Returns head, then for each its name after the length of that, when it was changed, until (0: it was opened), mode and since.

local now, failure = clock(KEYS[1], false)
if not now then return failure end
local out = {head(now)}
local list = call('ZRANGEBYSCORE', KEYS[3], '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, num(ARGV[3]))
for i = 1, #list, 2 do
  local had, mode, since = gateOf(call('HGET', KEYS[2], list[i]), now)
  out[#out + 1] = pack('<I2', #list[i]) .. list[i] .. pack('<I7I7BI7', num(list[i + 1]), had or 0, num(mode or '0'), since or 0)
end
return table.concat(out)
