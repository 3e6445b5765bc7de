-- Hands undispatched units back.
--
-- KEYS  1 clock, 2 the node's reply slot, then timelines and quotas
-- ARGV  1 seq, 2 override, 3 JSON: [[timeline, rev, n, whole, rest, at, frac, units, granted_at,
--         [[quota, span, ...], ...]], ...]
--       timeline and quota are indexes into KEYS.
-- Returns a line with seq and one with now.

local seq = num(ARGV[1])
local again = stored(KEYS[2], seq)
if again then return again end
local now = clock(KEYS[1], num(ARGV[2]), true)

-- Slots that are still the last ones granted become free again.
local function refundTimeline(key, rev, n, whole, rest, at, frac, units)
  local v = call('HGET', key, 's')
  if not v or n == 0 or units > 65536 then return end
  local nat, nfrac, nn, nwhole, nrest, nrev, burst, last, after =
    match(v, '^%[(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)()')
  if num(nn) ~= n or num(nwhole) ~= whole or num(nrest) ~= rest or num(nrev) ~= rev then return end
  local f = frac + units * rest
  if at + units * whole + floor(f / n) ~= num(nat) or f % n ~= num(nfrac) then return end
  local first = at
  if frac > 0 then first = at + 1 end
  call('HSET', key, 's', fmt('[%d,%d,%d,%d,%d,%d,%d,%d', at, frac, n, whole, rest, rev, burst, first - whole) .. sub(v, after))
end

-- Takes units from the bucket they were granted in, if it still counts.
local function refundWindow(w, granted, units)
  expire(w, now)
  if w[COUNT] == 0 then return end
  local index = floor(granted / w[WIDTH]) - w[BASE]
  if index == w[INDEX] then
    units = min(units, w[UNITS])
    w[UNITS], w[COUNT] = w[UNITS] - units, w[COUNT] - units
    return
  end
  local out, first, changed = {}, nil, false
  for i, n in gmatch(older(w), '(%d+):(%d+),') do
    i, n = num(i), num(n)
    if i == index then
      local back = min(units, n)
      n, w[COUNT], changed = n - back, w[COUNT] - back, true
    end
    if n > 0 then
      first = first or i
      out[#out + 1] = fmt('%d:%d,', i, n)
    end
  end
  if changed then
    setOlder(w, table.concat(out))
    w[FIRST] = first or w[INDEX]
  end
end

local quotas = {}
for _, r in ipairs(decode(ARGV[3])) do
  refundTimeline(KEYS[r[1]], r[2], r[3], r[4], r[5], r[6], r[7], r[8])
  for _, list in ipairs(r[10]) do
    local q = quotas[list[1]] or loadQuota(KEYS[list[1]])
    quotas[list[1]] = q
    for i = 2, #list do
      local w = findWindow(q, list[i])
      if w then refundWindow(w, r[9], r[8]) end
    end
  end
end
for _, q in pairs(quotas) do
  if #q.windows > 0 then saveQuota(q, now) end
end
return store(KEYS[2], fmt('%d\n%d', seq, now))
