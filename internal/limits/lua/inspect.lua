-- Reports the store's state. With retire it holds no epoch afterwards, if it holds the one that the header names.
--
-- KEYS  1 clock
-- ARGV  1 header, 2 retire (0|1)
-- Returns head and the epoch, 0 where there is none or another process adopted it.

local shown, witnessed, epoch, process = readClock(KEYS[1])
if ARGV[2] == '1' and epoch == EPOCH then
  epoch = 0
  call('SET', KEYS[1], pack(CLOCK, shown, witnessed, epoch) .. process)
end
if epoch > 0 and not find(call('INFO', 'server'), process, 1, true) then epoch = 0 end
return head(redisTime()) .. pack('<I7', epoch)
