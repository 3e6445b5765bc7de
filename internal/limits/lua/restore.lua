-- Puts windows in place in a store that lost its data, and adopts it.
--
-- KEYS  1 clock, then quotas
-- ARGV  1 header, whose epoch is the one to adopt, 2 quotas, as parseSpecs reads them
--       3 per window: reset (fixed windows), count, and count times at and units, oldest first 4 which part this is:
--       1 the first, 2 the last, 3 the only one, 0 another. With the last the store is adopted.
-- Returns head. A store that is in force already is not changed. The first part leaves a mark in place of the run id,
-- which the others must find: otherwise the data of the earlier parts is lost again, or another daemon is restoring.

local process = match(call('INFO', 'server'), 'run_id:(%x+)')
if not process then return redis.error_reply('NORUNID INFO names no run_id: a restart of this server could not be noticed') end
local mark = string.format('restoring %d on %s', EPOCH, process)
local first, last = num(ARGV[4]) % 2 == 1, num(ARGV[4]) >= 2
local shown, _, had, found = readClock(KEYS[1])
local now = redisTime()
if had > 0 and found == process then
  if had == EPOCH then return head(now) end
  return redis.error_reply('EPOCH the data is in force')
end
if not first and found ~= mark then return redis.error_reply('EPOCH the parts before are lost') end
local refused = refuseJump(now, now)
if refused then return refused end
if not first then now = max(now, shown) end
local pos = 1
for _, spec in ipairs(parseSpecs(ARGV[2])) do
  local q = loadQuota(KEYS[spec.key], nil) -- the old value is replaced
  for i, w in ipairs(openWindows(q, spec, now, 0)) do
    local reset, count
    reset, count, pos = parse('<I7I2', ARGV[3], pos)
    for _ = 1, count do
      local at, units
      at, units, pos = parse('<I7I7', ARGV[3], pos)
      if w[KIND] == FIXED then
        w[COUNT], w[FIRST], w[INDEX] = w[COUNT] + units, reset - w[SPAN], reset
      else
        debit(w, at, units, spec[i].period)
      end
    end
  end
  saveQuota(q, now)
end
call('SET', KEYS[1], pack(CLOCK, now, 0, last and EPOCH or 0) .. (last and process or mark))
return head(now)
