-- Reports the store's state, and changes nothing.
--
-- KEYS  1 clock
-- ARGV  1 header
-- Returns head and the epoch, 0 where there is none or another process adopted it.

local _, _, epoch, process = readClock(KEYS[1])
if epoch > 0 and not find(call('INFO', 'server'), process, 1, true) then epoch = 0 end
return head(redisTime()) .. pack('<I7', epoch)
