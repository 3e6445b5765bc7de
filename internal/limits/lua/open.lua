-- Opens a gate: a job was delivered, or somebody opens it by hand.
--
-- KEYS  1 clock, 2 gate
-- ARGV  1 header, 2 by hand (0|1), 3 by whom, noted for a minute
-- Returns head and whether a gate was opened (0|1).

local now, refused = clock(KEYS[1], false)
if not now then return refused end
local had = gateOf(call('GET', KEYS[2]), now)
local opened = 0
if had then
  if ARGV[2] == '1' then
    call('SET', KEYS[2], string.format('0 0 %d ', now) .. ARGV[3], 'PX', 60000)
  else
    call('DEL', KEYS[2])
  end
  opened = 1
end
return head(now) .. pack('<B', opened)
