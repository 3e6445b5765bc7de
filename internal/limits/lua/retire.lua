-- Makes the store hold no epoch, if it holds the one that the header names.
--
-- KEYS  1 clock
-- ARGV  1 header
-- Returns head.

local v = call('GET', KEYS[1])
if v then
  local seen, offset, steps, had, pos = parse(CLOCK, v)
  if had == EPOCH then call('SET', KEYS[1], pack(CLOCK, seen, offset, steps, 0) .. sub(v, pos)) end
end
return head(clock(KEYS[1], false))
