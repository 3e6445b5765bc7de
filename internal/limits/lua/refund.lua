-- Hands undispatched units back.
--
-- KEYS  1 clock, 2 the node's reply slot, then timelines and quotas
-- ARGV  1 "seq override", 2 "refunds" (how many), then per refund two arguments:
--         "timeline rev n whole rest at frac units granted_at", "quota span span ..., quota span ..."
--       timeline and quota are indexes into KEYS.
-- Returns "now".

local seq, override = match(ARGV[1], '^(%d+) (%d+)$')
seq = num(seq)
local again = stored(KEYS[2], seq)
if again then return again end
local now = clock(KEYS[1], num(override), true)

local function refundTimeline(key, rev, n, whole, rest, at, frac, units)
  local v = call('GET', key)
  if not v or n == 0 or units > 65536 then return end
  local head, last, high, tail = match(v, '^(%d+ %d+ %d+ %d+ %d+ %d+ %d+) (%d+) (%d+)(.*)$')
  local nat, nfrac, nn, nwhole, nrest, nrev, burst = match(head, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  if num(nn) ~= n or num(nwhole) ~= whole or num(nrest) ~= rest or num(nrev) ~= rev then return end
  local f = frac + units * rest
  if at + units * whole + floor(f / n) ~= num(nat) or f % n ~= num(nfrac) then return end
  local first = at
  if frac > 0 then first = at + 1 end
  call('SET', key, fmt('%d %d %s %s %s %s %s %d %s%s', at, frac, nn, nwhole, nrest, nrev, burst, first - whole, high, tail),
    'KEEPTTL')
end

-- Takes units from the bucket they were granted in, if it still counts.
local function refundWindow(w, granted, units)
  expire(w, now)
  if w.count == 0 then return end
  local index = floor(granted / w.width) - w.base
  if index == w.index then
    units = min(units, w.units)
    w.units, w.count = w.units - units, w.count - units
    return
  end
  local out, changed = {}, false
  for i, n in gmatch(w.older, '(%d+):(%d+),') do
    i, n = num(i), num(n)
    if i == index then
      local back = min(units, n)
      n, w.count, changed = n - back, w.count - back, true
    end
    if n > 0 then out[#out + 1] = fmt('%d:%d,', i, n) end
  end
  if changed then w.older = table.concat(out) end
end

local quotas = {}
for r = 1, num(ARGV[2]) do
  local t, rev, n, whole, rest, at, frac, units, granted =
    match(ARGV[1 + 2 * r], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  units, granted = num(units), num(granted)
  refundTimeline(KEYS[num(t)], num(rev), num(n), num(whole), num(rest), num(at), num(frac), units)
  for list in gmatch(ARGV[2 + 2 * r], '[^,]+') do
    local q
    for v in gmatch(list, '%d+') do
      if not q then
        v = num(v)
        q = quotas[v] or loadQuota(KEYS[v])
        quotas[v] = q
      elseif q.spans[v] then
        refundWindow(q.spans[v], granted, units)
      end
    end
  end
end
for _, q in pairs(quotas) do
  if #q.windows > 0 then saveQuota(q) end
end
return store(KEYS[2], seq, fmt('%d', now))
