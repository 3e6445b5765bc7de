-- Opens a gate: a job was delivered, or somebody opens it by hand.
--
-- KEYS  1 clock, 2 gate
-- ARGV  1 header
-- Returns head and whether a gate was opened (0|1).

local now, failure = clock(KEYS[1], false)
if not now then return failure end
return head(now) .. pack('<B', call('DEL', KEYS[2]))
