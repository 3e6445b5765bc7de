-- Counts units that were sent without asking.
--
-- KEYS  1 clock, 2 the node's reply slot, then quotas
-- ARGV  1 header, 2 quotas, as parseSpecs reads them, 3 per quota: units, widen
-- Returns head.

return once(function(now)
  local pos, charged = 1, {}
  for _, spec in ipairs(parseSpecs(ARGV[2])) do
    local units, widen
    units, widen, pos = parse('<I7I5', ARGV[3], pos)
    local key = KEYS[spec.key]
    local q = loadQuota(key, call('GET', key))
    for i, w in ipairs(openWindows(q, spec, now, widen)) do
      if units > 0 then debit(w, now, units, spec[i].period) end
    end
    -- The windows of a quota may come one by one, each with what it counts of the same units.
    local before = charged[key] or 0
    q.taken, charged[key] = q.taken + max(0, units - before), max(units, before)
    saveQuota(q, now)
  end
  return head(now)
end)
