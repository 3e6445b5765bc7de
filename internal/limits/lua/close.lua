-- Closes the gate of a sink, or opens it. A wait that the destination asked for is never shortened; it replaces any other closure, and no
-- other is shortened by one of its kind.
--
-- KEYS  1 clock, 2 gate
-- ARGV  1 header, 2 microseconds from now, 3 mode; without these it opens the gate: a job was delivered, or somebody opens it by hand
-- Returns head, and whether the gate was not closed for this cause before (0|1).

local now, failure = clock(KEYS[1], ARGV[2])
if not now then return failure end
if not ARGV[2] then
  call('DEL', KEYS[2])
  return head(now) .. pack('<B', 0)
end
local untilAt, mode, changed, since = now + num(ARGV[2]), ARGV[3], 1, now
local had, before, begun = gateOf(call('GET', KEYS[2]), now)
if had then
  if CAUSE[before] == CAUSE[mode] then changed, since = 0, begun end
  if had > untilAt then
    if before == MODE.ASKED then return head(now) .. pack('<B', changed) end
    if mode ~= MODE.ASKED then untilAt = had end
  end
end
-- A half-open gate stays until it is opened; if no daemon does that, it expires after a day.
call('SET', KEYS[2], gateText(untilAt, mode, since), 'PX', string.format('%d', floor((untilAt - now) / 1000) + 86460000))
return head(now) .. pack('<B', changed)
