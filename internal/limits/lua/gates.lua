-- Reports gates, and changes nothing.
--
-- KEYS  1 clock, then gates
-- ARGV  1 header
-- Returns head, then for each gate until (0: there is none), mode and since.

local now, failure = clock(KEYS[1], false)
if not now then return failure end
local out = {head(now)}
for i = 2, #KEYS do
  local had, mode, since = gateOf(call('GET', KEYS[i]), now)
  out[i] = pack('<I7BI7', had or 0, num(mode or '0'), since or 0)
end
return table.concat(out)
