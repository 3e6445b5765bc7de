-- Sets how many units a window has counted. More count as if they were granted now; of fewer, all do.
--
-- KEYS  1 clock, 2 the node's reply slot, 3 quota
-- ARGV  1 header, 2 the quota, as parseSpecs reads it, 3 window, units, lower (whether there may be fewer than before)
-- Returns head and the units before and after.

return once(function(now)
  local index, units, lower = parse('<BI7B', ARGV[3])
  local spec = parseSpecs(ARGV[2])[1]
  local key = KEYS[spec.key]
  local q = loadQuota(key, call('GET', key))
  local w, period = openWindows(q, spec, now, 0)[index + 1], spec[index + 1].period
  local before = w[COUNT]
  if units > before then
    debit(w, now, units - before, period)
  elseif lower == 1 and units < before then
    w[COUNT], w[UNITS], w[OLDER] = 0, 0, ''
    if units > 0 then debit(w, now, units, period) end
    -- There is room sooner than the rivals were told: nothing is kept for them until they ask again.
    for r = 1, #q.rivals do q.rivals[r][DEMAND] = 0 end
  end
  saveQuota(q, now)
  return head(now) .. pack('<I7I7', before, w[COUNT])
end)
