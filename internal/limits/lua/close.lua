-- Closes a gate. A closure of the same mode is never shortened, and probing gives way to a closure that a destination
-- asked for, while that lasts longer.
--
-- KEYS  1 clock, 2 gate
-- ARGV  1 header, 2 microseconds from now, 3 probe (0|1)
-- Returns head and until.

local now, epoch = clock(KEYS[1], true)
if not now then return epoch end
local untilAt, life = now + num(ARGV[2]), num(ARGV[2])
local v = call('GET', KEYS[2])
if v then
  local had, probe = match(v, '^(%d+) (%d)$')
  had = num(had)
  if probe == '0' and ARGV[3] == '1' and had > untilAt then return head(now, epoch) .. pack('<I7', had) end
  if probe == ARGV[3] and had > untilAt then
    untilAt = had
    life = untilAt - now
  end
end
-- A probing gate stays until it is opened; should nobody be left to do that, it is forgotten after a day.
local ttl = floor(life / 1000) + 60000
if ARGV[3] == '1' then ttl = ttl + 86400000 end
call('SET', KEYS[2], string.format('%d %s', untilAt, ARGV[3]), 'PX', string.format('%d', ttl))
return head(now, epoch) .. pack('<I7', untilAt)
