-- Closes and opens gates of destinations. As with the gates of sinks, a wait that a destination asked for is never shortened by
-- another, and replaces any other closure. Of all gates only those that were changed last are kept.
--
-- KEYS  1 clock, 2 hash: of each destination until, mode and since; until is 0 if it was opened
--       3 sorted set: of each destination when it was changed last; no two at once
-- ARGV  1 header, 2 how many destinations are kept, then for each destination its name, microseconds from now
--       (0: it opens) and its mode
-- Returns head and how many were changed.

local now, failure = clock(KEYS[1], true)
if not now then return failure end
local newest = call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
local at, changed = max(now, (num(newest[2]) or 0) + 1), 0
for i = 3, #ARGV, 3 do
  local name, life, mode = ARGV[i], num(ARGV[i + 1]), ARGV[i + 2]
  local had, before, since = gateOf(call('HGET', KEYS[2], name), now)
  had, since = had or 0, since or now
  local untilAt, waits = now + life, had > now and before == MODE.ASKED
  if life == 0 then
    untilAt = 0
    if had == 0 then untilAt = nil end
  elseif waits and had > untilAt then
    untilAt = nil
  elseif had == 0 or CAUSE[before] ~= CAUSE[mode] then
    since = now
  end
  if untilAt then
    call('HSET', KEYS[2], name, gateText(untilAt, mode, since))
    call('ZADD', KEYS[3], string.format('%d', at), name)
    at, changed = at + 1, changed + 1
  end
end
local surplus = call('ZCARD', KEYS[3]) - num(ARGV[2])
if surplus > 0 then
  local oldest = call('ZRANGE', KEYS[3], 0, surplus - 1)
  for i = 1, #oldest do
    call('ZREM', KEYS[3], oldest[i])
    call('HDEL', KEYS[2], oldest[i])
  end
end
-- What was not changed for a day is of no use.
call('PEXPIRE', KEYS[2], 86400000)
call('PEXPIRE', KEYS[3], 86400000)
return head(now) .. pack('<I7', changed)
