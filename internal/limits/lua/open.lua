-- Opens a gate that failures closed. What a destination asked for (Retry-After) stays closed until its time.
--
-- KEYS  1 clock, 2 gate
-- ARGV  1 header
-- Returns head and whether a gate was opened (0|1).

local now, epoch = clock(KEYS[1], false)
if not now then return epoch end
local v, opened = call('GET', KEYS[2]), 0
if v and match(v, ' 1$') then
  call('DEL', KEYS[2])
  opened = 1
end
return head(now, epoch) .. pack('<B', opened)
