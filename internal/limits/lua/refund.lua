-- Hands undispatched units back.
--
-- KEYS  1 clock, 2 the node's reply slot, then timelines and quotas
-- ARGV  1 header
--       2 per grant: timeline, rev, n, whole, rest, at, frac, units, granted_at, quotas, then per quota
--         key, part, windows, and per window its span and calendar as in parseSpecs
-- Returns head.

local again = stored(KEYS[2])
if again then return again end
local now, steps = clock(KEYS[1], true)
if not now then return steps end

-- Slots that are still the last ones granted become free again.
local function refundTimeline(key, rev, n, whole, rest, at, frac, units)
  local v = call('GET', key)
  if not v or n == 0 or units > 65536 then return end
  local nat, nfrac, nn, nwhole, nrest, nrev, burst, last, after = parse('<I7I7I7I7I7I7I7I7', v)
  if nn ~= n or nwhole ~= whole or nrest ~= rest or nrev ~= rev then return end
  local f = frac + units * rest
  if at + units * whole + floor(f / n) ~= nat or f % n ~= nfrac then return end
  local first = at
  if frac > 0 then first = at + 1 end
  call('SET', key, pack('<I7I7I7I7I7I7I7I7', at, frac, n, whole, rest, rev, burst, first - whole) .. sub(v, after), 'KEEPTTL')
end

local quotas, pos = {}, 1
while pos <= #ARGV[2] do
  local timeline, rev, n, whole, rest, at, frac, units, granted, count
  timeline, rev, n, whole, rest, at, frac, units, granted, count, pos = parse('<I2I7I7I7I7I7I7I4I7B', ARGV[2], pos)
  refundTimeline(KEYS[timeline], rev, n, whole, rest, at, frac, units)
  for _ = 1, count do
    local key, part, windows
    key, part, windows, pos = parse('<I2BB', ARGV[2], pos)
    local q = quotas[key] or loadQuota(KEYS[key], call('GET', KEYS[key]))
    quotas[key] = q
    local back = floor(units * part / 100)
    for _ = 1, windows do
      local follows, span, period
      follows, span, pos = parse('<BI6', ARGV[2], pos)
      if follows == 1 then
        local a, b, c
        a, b, c, pos = parse('<I7I7I7', ARGV[2], pos)
        period = {a, b, c}
      end
      local w = findWindow(q, span)
      if w and back > 0 then
        expire(w, now, period)
        refund(w, granted, back)
      end
    end
  end
end
for _, q in pairs(quotas) do
  if #q.windows > 0 then saveQuota(q, now) end
end
return store(KEYS[2], head(now, steps))
