-- Opens a gate that failures closed. What a destination asked for (Retry-After) stays closed until its time.
--
-- KEYS  1 gate
-- Returns "1" when a gate was opened, "0" otherwise.

local v = call('GET', KEYS[1])
if v and match(v, ' 1$') then
  call('DEL', KEYS[1])
  return '1'
end
return '0'
