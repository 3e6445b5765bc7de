-- Reports gates, and changes nothing.
--
-- KEYS  1 clock, then gates
-- ARGV  1 header
-- Returns head, then for each gate until (0: there is none), mode, since and, after its length, who opened it.

local now, refused = clock(KEYS[1], false)
if not now then return refused end
local out = {head(now)}
for i = 2, #KEYS do
  local had, mode, since, by = gateOf(call('GET', KEYS[i]), now)
  out[i] = pack('<I7BI7B', had or 0, num(mode or '0'), since or 0, #(by or '')) .. (by or '')
end
return table.concat(out)
