-- Closes a gate. A wait that the destination asked for is never shortened; it replaces any other closure, and no other is shortened by
-- one of its kind.
--
-- KEYS  1 clock, 2 gate
-- ARGV  1 header, 2 microseconds from now, 3 mode
-- Returns head, until, and whether the gate was not closed for this cause before (0|1).

local now, failure = clock(KEYS[1], true)
if not now then return failure end
local mode, life, changed, since = ARGV[3], num(ARGV[2]), 1, now
local untilAt = now + life
local had, before, begun = gateOf(call('GET', KEYS[2]), now)
if had then
  if CAUSE[before] == CAUSE[mode] then changed, since = 0, begun end
  if before == MODE.ASKED and had > untilAt then return head(now) .. pack('<I7B', had, changed) end
  if before ~= MODE.ASKED and mode ~= MODE.ASKED and had > untilAt then
    untilAt = had
    life = untilAt - now
  end
end
-- A half-open gate stays until it is opened; if no daemon does that, it expires after a day.
local ttl = floor(life / 1000) + 86460000
call('SET', KEYS[2], string.format('%d %s %d', untilAt, mode, since), 'PX', string.format('%d', ttl))
return head(now) .. pack('<I7B', untilAt, changed)
