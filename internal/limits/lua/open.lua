-- Opens a gate that probes may open. One that a destination asked to close stays closed until its time, unless it is
-- opened by hand.
--
-- KEYS  1 clock, 2 gate
-- ARGV  1 header, 2 by hand (0|1)
-- Returns head and whether a gate was opened (0|1).

local now, steps = clock(KEYS[1], false)
if not now then return steps end
local had, mode = gateOf(call('GET', KEYS[2]))
local opened = 0
if had and (ARGV[2] == '1' or not ASKED[mode]) then
  call('DEL', KEYS[2])
  opened = 1
end
return head(now, steps) .. pack('<B', opened)
