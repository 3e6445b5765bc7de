-- Makes the store hold no epoch, if it holds the one that the header names.
--
-- KEYS  1 clock
-- ARGV  1 header
-- Returns head.

local shown, witnessed, epoch, process = readClock(KEYS[1])
if epoch == EPOCH then call('SET', KEYS[1], pack(CLOCK, shown, witnessed, 0) .. process) end
return head(redisTime())
