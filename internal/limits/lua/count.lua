-- Reports what windows have counted, and changes nothing.
--
-- KEYS  1 clock, then quotas
-- ARGV  1 header, 2 quotas, as parseSpecs reads them, 3 per quota: window, from 0, and since
-- Returns head, then per quota kind, 0 where there is no such window, reset (fixed windows), when the oldest bucket
-- began, and the units in the buckets from that of since on, and from that of now on. A fixed window is one bucket, which
-- began a span before its reset.

local now, failure = clock(KEYS[1], false)
if not now then return failure end

-- The units in the buckets from an index on.
local function from(w, index)
  local units, at = 0, w[LAST]
  if w[COUNT] > 0 and w[INDEX] >= index then units = w[UNITS] end
  local list, form, size = w[OLDER], ENTRY[w[KIND]], SIZE[w[KIND]]
  for pos = #list - size + 1, 1, -size do
    if at < index then break end
    local gap, n = parse(form, list, pos)
    units, at = units + n, at - gap
  end
  return units
end

local out, pos = {head(now)}, 1
for _, spec in ipairs(parseSpecs(ARGV[2])) do
  local window, since
  window, since, pos = parse('<BI7', ARGV[3], pos)
  local s, key = spec[window + 1], KEYS[spec.key]
  local w = findWindow(loadQuota(key, call('GET', key)), s.span)
  local kind, reset, born, units, newest = 0, 0, 0, 0, 0
  if w then
    expire(w, now, s.period)
    kind = w[KIND]
    if kind == FIXED then
      reset, units, newest = w[INDEX], w[COUNT], w[COUNT]
      if reset > 0 then born = reset - w[SPAN] end
    else
      if w[COUNT] > 0 then born = w[FIRST] * w[WIDTH] end
      units, newest = from(w, floor(since / w[WIDTH])), from(w, floor(now / w[WIDTH]))
    end
  end
  out[#out + 1] = pack('<BI7I7I7I7', kind, reset, born, units, newest)
end
return table.concat(out)
