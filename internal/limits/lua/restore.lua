-- Puts windows in place in a store that lost its data, and adopts it.
--
-- KEYS  1 clock, then quotas
-- ARGV  1 header, whose incarnation is the one to adopt, 2 quotas, as parseSpecs reads them
--       3 per window: reset (fixed windows), count, and so many times at and units, oldest first
--       4 whether this is the last part: then the store is adopted (0|1)
-- Returns head. A store that is in force already is left alone.

local v = call('GET', KEYS[1])
if v then
  local _, _, _, had, pos = parse(CLOCK, v)
  if had > 0 and find(call('INFO', 'server'), sub(v, pos), 1, true) then
    if had == INCARNATION then return head(clock(KEYS[1], false)) end
    return redis.error_reply('INCARNATION the data is in force')
  end
end
local now, epoch = clock(KEYS[1], true)
local pos = 1
for _, spec in ipairs(parseSpecs(ARGV[2])) do
  local q = loadQuota(KEYS[spec.key])
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
if ARGV[4] == '1' then
  local seen, offset, at = parse(CLOCK, call('GET', KEYS[1]))
  local process = match(call('INFO', 'server'), 'run_id:(%x+)') or ''
  call('SET', KEYS[1], pack(CLOCK, seen, offset, at, INCARNATION) .. process)
end
return head(now, epoch)
