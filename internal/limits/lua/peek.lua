-- Reports windows and changes nothing.
--
-- KEYS  1 clock, then quotas
-- ARGV  1 header, 2 quotas, as parseSpecs reads them
-- Returns head, then per window remaining, reset_at and when the next unit is free, 0 if one is free now, or never.

local now, failure = clock(KEYS[1], false)
if not now then return failure end
local out = {head(now)}
for _, spec in ipairs(parseSpecs(ARGV[2])) do
  local key = KEYS[spec.key]
  local q = loadQuota(key, call('GET', key))
  for _, w in ipairs(openWindows(q, spec, now, 0)) do
    out[#out + 1] = pack('<I7I7I7', remaining(w), resetAt(w, now), nextUnit(w))
  end
end
return table.concat(out)
