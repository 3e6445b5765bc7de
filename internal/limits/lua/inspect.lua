-- Tells what the store says of itself, and changes nothing.
--
-- KEYS  1 clock
-- ARGV  1 header
-- Returns head and the incarnation, 0 where there is none or another process adopted it.

local now, epoch = clock(KEYS[1], false)
local v, incarnation = call('GET', KEYS[1]), 0
if v then
  local _, _, _, had, pos = parse(CLOCK, v)
  if find(call('INFO', 'server'), sub(v, pos), 1, true) then incarnation = had end
end
return head(now, epoch) .. pack('<I7', incarnation)
