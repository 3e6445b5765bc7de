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

-- The first whole microsecond not before the slot k places after (at, frac) on a timeline of n, whole and rest.
local function slotAfter(k, n, whole, rest, at, frac)
  local f = frac + k * rest
  at = at + k * whole + floor(f / n)
  if f % n > 0 then at = at + 1 end
  return at
end

local MAXHOLES = 32

-- Adds a hole, in order, and joins it with those it touches.
local function addHole(holes, before, last)
  local kept, place = {}, 1
  for i = 1, #holes do
    local h = holes[i]
    if h[HOLEBEFORE] <= last and before <= h[HOLELAST] then
      before, last = min(before, h[HOLEBEFORE]), max(last, h[HOLELAST])
    else
      kept[#kept + 1] = h
    end
  end
  while place <= #kept and kept[place][HOLELAST] < last do place = place + 1 end
  table.insert(kept, place, {before, last})
  if #kept > MAXHOLES then table.remove(kept, 1) end
  return kept
end

-- Frees slots, of this revision or an earlier one: the timeline ends before them if they are the last ones, and has a hole
-- otherwise.
local function refundTimeline(key, rev, n, whole, rest, at, frac, units)
  local v = call('GET', key)
  if not v or n == 0 or units > 65536 then return end
  local nat, nfrac, nn, nwhole, nrest, nrev, burst, nlast, after = parse('<I7I7I7I7I7I7I7I7', v)
  if nn == 0 then return end
  local before, last = slotAfter(-1, n, whole, rest, at, frac), slotAfter(units - 1, n, whole, rest, at, frac)
  local _, _, count, pos = parse('<I7I7B', v, after)
  for _ = 1, count do
    local _, _, _, _, _, next = parse('<Bc0I7I7I7I7', v, pos)
    pos = next
  end
  local holes = holesOf(v, pos, now)
  if last ~= nlast then
    if last < now or last > nlast then return end
    holes = addHole(holes, before, last)
  else
    nlast = before
    local joined = false
    while #holes > 0 and holes[#holes][HOLELAST] >= nlast do
      nlast, joined = min(nlast, holes[#holes][HOLEBEFORE]), true
      table.remove(holes)
    end
    if not joined and nn == n and nwhole == whole and nrest == rest and nrev == rev then
      nat, nfrac = at, frac
    else
      nat, nfrac = nlast + nwhole, 0
      if nrest > 0 then nat = nat + 1 end
    end
  end
  call('SET', key, pack('<I7I7I7I7I7I7I7I7', nat, nfrac, nn, nwhole, nrest, nrev, burst, nlast) .. sub(v, after, pos - 1) ..
    packHoles(holes), 'KEEPTTL')
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
    local back = part > 0 and units or 0
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
