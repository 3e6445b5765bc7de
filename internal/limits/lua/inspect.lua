-- Reports the store's state, and changes nothing.
--
-- KEYS  1 clock
-- ARGV  1 header
-- Returns head and the epoch, 0 where there is none or another process adopted it.

local now, steps = clock(KEYS[1], false)
local v, epoch = call('GET', KEYS[1]), 0
if v then
  local _, _, _, had, pos = parse(CLOCK, v)
  if find(call('INFO', 'server'), sub(v, pos), 1, true) then epoch = had end
end
return head(now, steps) .. pack('<I7', epoch)
