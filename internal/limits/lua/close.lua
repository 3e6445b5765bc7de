-- Closes a gate. A closure of the same mode is never shortened, and probing gives way to a closure that a destination
-- asked for, while that lasts longer.
--
-- KEYS  1 clock, 2 gate
-- ARGV  1 override, 2 microseconds from now, 3 probe (0|1)
-- Returns "until".

local now = clock(KEYS[1], num(ARGV[1]), true)
local untilAt, life = now + num(ARGV[2]), num(ARGV[2])
local v = call('GET', KEYS[2])
if v then
  local had, probe = match(v, '^(%d+) (%d)$')
  if probe == '0' and ARGV[3] == '1' and num(had) > untilAt then return had end
  if probe == ARGV[3] and num(had) > untilAt then
    untilAt = num(had)
    life = untilAt - now
  end
end
-- A probing gate stays until it is opened; should nobody be left to do that, it is forgotten after a day.
local ttl = floor(life / 1000) + 60000
if ARGV[3] == '1' then ttl = ttl + 86400000 end
call('SET', KEYS[2], fmt('%d %s', untilAt, ARGV[3]), 'PX', fmt('%d', ttl))
return fmt('%d', untilAt)
