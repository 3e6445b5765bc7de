-- The state of quotas: their windows, and the daemons that compete for them.
--
--   quota   renew rev windows rivals born taken, then each window and each rival
--   window  kind span limit widen count index units first last paceAt paceFrac narrowAt narrowTo bytes, then the list; for
--     narrowAt and narrowTo see model/window.go, 0: the window does not get narrower
--     sliding, log: index, units: the newest bucket; the list: gap units of each older one, oldest first, where gap is
--       the distance from the bucket before; first, last: the indexes of the oldest and the newest in the list
--     fixed: index: the reset, 0 while none is open; units: the tail; first, last: since when units are in the count, and in the tail
--   rival   id seen due demand cost service
--   renew is when the key's time to live is to be set again; taken is how many units were granted and not handed back since born, when the
--   key was made.

local GRANT = 65536
local SLIDING, LOG, FIXED = 1, 2, 3

local QUOTA = '<I7I7BBI7I7'
local WINDOW = '<BI6I7I4I7I7I5I7I7I7I5I7I4I3'
-- Fields that are not part of the format come first: a table that is constructed in full need not
-- grow.
local OLDER, WIDTH = 1, 2
local KIND, SPAN, LIMIT, WIDEN, COUNT, INDEX, UNITS, FIRST, LAST, PAT, PFRAC, NARROWAT, NARROWTO, BYTES =
  3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
local RIVAL = '<I2c0I7I7I4I4I7'
local TIE, ID, SEEN, DUE, DEMAND, COST, SERVICE = 1, 2, 3, 4, 5, 6, 7 -- see model/rival.go

local CLAIM = 15 * SECOND

-- Until when room is kept for a daemon that said how much it can use. It may be gone: daemons ask every 12.5 s at least.
local function claimEnd(r, grace) return min(r[DUE] + grace, r[SEEN] + CLAIM) end

-- Whether a daemon was told to ask again, and may still do so.
local function isDue(r, now, grace) return r[DUE] > 0 and now <= claimEnd(r, grace) end

-- Older buckets: the format of one, its length, and the largest gap and count it holds; larger ones take several.
local ENTRY = {'<BI3', '<I5I3'}
local SIZE = {4, 8}
local GAP = {255, 1099511627775}
local MOST = 16777215
-- What one bucket holds: its length in the list is bounded by that. The rest counts in the bucket after it, so for longer.
local BUCKET = 4096 * MOST

-- How long a bucket is: Step of model/window.go.
local function width(kind, span)
  if kind == LOG then return 1 end
  return max(1000, floor((span + max(floor(span / 1000), min(floor(span / 150), 600000)) + 59) / 60))
end

local function newWindow(kind, span) return {'', width(kind, span), kind, span, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} end

-- The rivals that are stored from a place on, and where they end.
local function readRivals(v, pos, count)
  local rivals = {}
  for i = 1, count do
    local r = {0, parse(RIVAL, v, pos)}
    rivals[i], pos = r, r[8]
  end
  return rivals, pos
end

local function packRivals(out, rivals)
  for i = 1, #rivals do
    local r = rivals[i]
    out[#out + 1] = pack(RIVAL, #r[2], r[2], r[3], r[4], r[5], r[6], r[7])
  end
end

-- A quota's windows, in the order in which they came, and its rivals; v is the value of its key, if any.
local function loadQuota(key, v)
  if not v then return {key = key, renew = 0, rev = 0, windows = {}, rivals = {}, born = 0, taken = 0, opened = false, joined = false, self = false} end
  local renew, rev, count, others, born, taken, pos = parse(QUOTA, v)
  local windows = {}
  for i = 1, count do
    local w = {'', 0, parse(WINDOW, v, pos)}
    local from = w[17]
    pos = from + w[BYTES]
    w[WIDTH] = width(w[KIND], w[SPAN])
    if pos > from then w[OLDER] = sub(v, from, pos - 1) end
    windows[i] = w
  end
  return {key = key, renew = renew, rev = rev, windows = windows, rivals = readRivals(v, pos, others), born = born, taken = taken, opened = false, joined = false, self = false}
end

local function findWindow(q, span)
  local windows = q.windows
  for i = 1, #windows do
    if windows[i][SPAN] == span then return windows[i] end
  end
  return nil
end

-- The key lives for two spans and two days after its last use: Redis expires it by a clock that may jump.
local function saveQuota(q, now)
  local renew = now >= q.renew
  if renew then q.renew = now + 30000000 end
  if q.born == 0 then q.born = now end
  local windows, rivals, longest = q.windows, q.rivals, 0
  local out = {pack(QUOTA, q.renew, q.rev, #windows, #rivals, q.born, q.taken)}
  for i = 1, #windows do
    local w = windows[i]
    longest = max(longest, w[SPAN] + w[WIDEN])
    local list = w[OLDER]
    out[i + 1] = pack(WINDOW, w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14],
      w[15], #list) .. list
  end
  packRivals(out, rivals)
  if renew then
    call('SET', q.key, table.concat(out), 'PX', string.format('%d', floor(longest / 500) + 172800000))
  else
    call('SET', q.key, table.concat(out), 'KEEPTTL')
  end
end

-- The calendar at a time: where the period began and where it ends. period holds three boundaries.
local function calendar(period, now)
  local a, b, c = period[1], period[2], period[3]
  if now < a then return min(now, a - 1), a end
  if now < b then return a, b end
  if now < c then return b, c end
  local start = c + floor((now - c) / (c - b)) * (c - b)
  return start, start + c - b
end

-- When the bucket with this index falls out of the window.
local function leaves(w, index) return (index + 1) * w[WIDTH] + w[SPAN] + w[WIDEN] end

-- Passes the resets of a fixed window. period is nil where it begins at its first use.
local function roll(w, now, period)
  local start = w[INDEX]
  if start == 0 or now < start then return end
  local from, to = start, start + w[SPAN]
  if period then from, to = calendar(period, now) end
  w[COUNT], w[UNITS], w[FIRST], w[INDEX] = w[UNITS], 0, w[LAST], to
  if from > start or now >= to then w[COUNT] = 0 end
  if w[COUNT] > 0 then return end
  w[FIRST] = from
  if not period then w[FIRST], w[INDEX] = 0, 0 end
end

-- How many more buckets this run may remove. Those that are left over count until the next one.
local trims = 4000

local function expire(w, now, period)
  if w[KIND] == FIXED then return roll(w, now, period) end
  if w[COUNT] == 0 or leaves(w, w[FIRST]) > now then return end
  if leaves(w, w[INDEX]) <= now then -- so has all the rest
    w[COUNT], w[UNITS], w[OLDER], w[FIRST] = 0, 0, '', w[INDEX]
    return
  end
  local list, pos, form, size = w[OLDER], 1, ENTRY[w[KIND]], SIZE[w[KIND]]
  while pos <= #list do
    local gap, units = parse(form, list, pos)
    if pos > 1 then w[FIRST] = w[FIRST] + gap end
    if leaves(w, w[FIRST]) > now or trims == 0 then break end
    w[COUNT], pos, trims = w[COUNT] - units, pos + size, trims - 1
  end
  if pos > 1 then w[OLDER] = sub(list, pos) end
  if w[OLDER] == '' then w[FIRST] = w[INDEX] end
end

local function remaining(w) return max(0, w[LIMIT] - w[COUNT]) end

-- Puts the newest bucket into the list, and returns what does not fit.
local function age(w)
  local kind, units = w[KIND], min(w[UNITS], BUCKET)
  local rest = w[UNITS] - units
  local form, gap = ENTRY[kind], w[INDEX] - w[LAST]
  local list = w[OLDER]
  if list == '' then w[FIRST], gap = w[INDEX], 0 end
  while gap > GAP[kind] do
    list, gap = list .. pack(form, GAP[kind], 0), gap - GAP[kind]
  end
  if units > MOST then
    local full = floor((units - 1) / MOST)
    list = list .. pack(form, gap, MOST) .. rep(pack(form, 0, MOST), full - 1)
    units, gap = units - full * MOST, 0
  end
  w[OLDER], w[LAST] = list .. pack(form, gap, units), w[INDEX]
  return rest
end

local function debit(w, now, units, period)
  if w[KIND] == FIXED then
    if w[INDEX] == 0 then
      if period then
        w[FIRST], w[INDEX] = calendar(period, now)
      else
        w[FIRST], w[INDEX] = now, now + w[SPAN]
      end
    end
    if w[UNITS] == 0 then w[LAST] = now end
    if now >= w[INDEX] - w[WIDEN] or w[UNITS] > 0 then w[UNITS] = w[UNITS] + units end
    w[COUNT] = w[COUNT] + units
    return
  end
  local index = floor(now / w[WIDTH])
  if w[COUNT] == 0 then
    w[INDEX], w[UNITS], w[FIRST], w[LAST], w[OLDER] = index, 0, index, index, ''
  elseif index > w[INDEX] then
    local rest = 0
    if w[UNITS] > 0 then
      rest = age(w)
    elseif w[OLDER] == '' then
      w[FIRST] = index
    end
    w[INDEX], w[UNITS] = index, rest
  end
  w[UNITS], w[COUNT] = w[UNITS] + units, w[COUNT] + units
end

-- Takes units back that were granted at a time, if they still count where they were counted.
local function refund(w, granted, units)
  if w[KIND] == FIXED then
    if w[INDEX] == 0 or granted < w[FIRST] or granted >= w[INDEX] then return end
    w[COUNT] = w[COUNT] - min(units, w[COUNT])
    if granted >= w[LAST] then w[UNITS] = w[UNITS] - min(units, w[UNITS]) end
    w[UNITS] = min(w[UNITS], w[COUNT])
    return
  end
  if w[COUNT] == 0 then return end
  local index = floor(granted / w[WIDTH])
  if index == w[INDEX] then
    units = min(units, w[UNITS])
    w[UNITS], w[COUNT] = w[UNITS] - units, w[COUNT] - units
    return
  end
  local list, form, size, at = w[OLDER], ENTRY[w[KIND]], SIZE[w[KIND]], w[LAST]
  for pos = #list - size + 1, 1, -size do -- what comes back was mostly granted lately
    local gap, n = parse(form, list, pos)
    if at < index or units == 0 then break end
    if at == index then
      local back, before, after, further, m = min(units, n), sub(list, 1, pos - 1), sub(list, pos + size), 0, nil
      units, w[COUNT] = units - back, w[COUNT] - back
      if after ~= '' then further, m = parse(form, after) end
      if n > back or pos == 1 or gap + further > GAP[w[KIND]] then -- the oldest one stays, since first is its place
        before = before .. pack(form, gap, n - back)
      elseif m then
        after = pack(form, gap + further, m) .. sub(after, size + 1)
      else
        w[LAST] = at - gap
      end
      list = before .. after
    end
    at = at - gap
  end
  w[OLDER] = list
end

-- When there will be room for the given units, which is later than now.
local function freeAt(w, units)
  if w[KIND] == FIXED then return w[INDEX] end
  local lack = w[COUNT] + units - w[LIMIT]
  local list, form, size, at = w[OLDER], ENTRY[w[KIND]], SIZE[w[KIND]], w[FIRST]
  for pos = 1, #list, size do
    local gap, n = parse(form, list, pos)
    if pos > 1 then at = at + gap end
    lack = lack - n
    if lack <= 0 then return leaves(w, at) end
  end
  return leaves(w, w[INDEX])
end

-- When the next unit will be free, where none is now; 0 where one is, or where there will never be one.
local function nextUnit(w)
  if remaining(w) > 0 or w[LIMIT] == 0 then return 0 end
  return freeAt(w, 1)
end

-- When the window will be full again if nothing is granted. The newest buckets may have been emptied by refunds.
local function resetAt(w, now)
  if w[COUNT] == 0 then return now end
  if w[KIND] == FIXED then return w[INDEX] end
  if w[UNITS] > 0 then return leaves(w, w[INDEX]) end
  local list, form, size, at = w[OLDER], ENTRY[w[KIND]], SIZE[w[KIND]], w[LAST]
  for pos = #list - size + 1, 1, -size do
    local gap, n = parse(form, list, pos)
    if n > 0 then break end
    at = at - gap
  end
  return leaves(w, at)
end

-- The quotas that the caller names, each: key, rev, cost, all and left (see delivery.Joint), flags, windows, and per window kind, calendar,
-- span, limit and, with a calendar, its three boundaries. flags: 1 shadow, 2 even, 4 does not cover the campaign.
local function parseSpecs(blob)
  local specs, pos = {}, 1
  while pos <= #blob do
    local key, rev, cost, all, left, due, flags, windows
    key, rev, cost, all, left, due, flags, windows, pos = parse('<I2I7I4I4I4I7BB', blob, pos)
    local s = {key = key, rev = rev, cost = cost, all = all, left = left, due = due, shadow = flags % 2 >= 1, even = flags % 4 >= 2, covers = flags < 4}
    for i = 1, windows do
      local kind, follows, span, limit, period
      kind, follows, span, limit, pos = parse('<BBI6I7', blob, pos)
      if follows == 1 then
        local a, b, c
        a, b, c, pos = parse('<I7I7I7', blob, pos)
        period = {a, b, c}
      end
      s[i] = {kind = kind, span = span, limit = limit, period = period}
    end
    specs[#specs + 1] = s
  end
  return specs
end

local function setLimit(q, w, limit)
  if limit == w[LIMIT] then return end
  if limit > w[LIMIT] then
    -- There is room sooner than the rivals were told: nothing is kept for them until they ask again.
    for r = 1, #q.rivals do q.rivals[r][DEMAND] = 0 end
  end
  w[LIMIT] = limit
  if w[PFRAC] > 0 then w[PAT], w[PFRAC] = w[PAT] + 1, 0 end -- the fraction was one of the limit
end

-- Makes sure that the window counts units for as long as they may be sent later than granted. What was granted under a larger
-- widening is counted by that until it has left.
local function widenTo(w, widen, now)
  if widen >= w[WIDEN] then
    w[WIDEN], w[NARROWAT], w[NARROWTO] = widen, 0, 0
    return
  end
  if w[NARROWAT] == 0 then w[NARROWAT] = now + w[SPAN] + w[WIDEN] end
  w[NARROWTO] = max(w[NARROWTO], widen)
  if now < w[NARROWAT] then return end
  w[WIDEN], w[NARROWAT], w[NARROWTO] = w[NARROWTO], 0, 0
  if widen < w[WIDEN] then w[NARROWAT], w[NARROWTO] = now + w[SPAN] + w[WIDEN], widen end -- and it gets narrower still
end

-- Of the first windows of a quota the one that holds most of what was granted in the last span: the shortest of those as long that hold
-- the times of their units, else the one that counts from the earliest time on.
local function longer(windows, count, now, span)
  local list, best, earliest = {unpack(windows, 1, count)}, nil, now
  table.sort(list, function(a, b) return a[SPAN] < b[SPAN] end)
  for i = 1, count do
    local w = list[i]
    local from = now - w[SPAN]
    if w[KIND] == FIXED then
      from = w[FIRST]
    elseif w[SPAN] >= span then
      return w
    end
    if (w[KIND] ~= FIXED or w[INDEX] > now) and from <= earliest then best, earliest = w, from end
  end
  return best
end

-- Counts what was granted lately in a new window, as far as another window of the quota tells, or itself before it was changed:
-- the units of a bucket as if granted at its end, those of a fixed window, which does not know when, as if granted now.
local function seed(w, from, now, period)
  if not from or from[COUNT] == 0 then return end
  if from[KIND] == FIXED then return debit(w, now, from[COUNT], period) end
  local begin, total = now - w[SPAN], 0
  if period then begin = calendar(period, now) end
  local function count(index, units)
    if units == 0 then return end
    local at = min(now, (index + 1) * from[WIDTH] - 1)
    if w[KIND] == FIXED then
      if at >= begin - w[WIDEN] then total = total + units end
    elseif leaves(w, floor(at / w[WIDTH])) > now then
      debit(w, at, units, period)
    end
  end
  local list, form, size, index = from[OLDER], ENTRY[from[KIND]], SIZE[from[KIND]], from[FIRST]
  for pos = 1, #list, size do
    local gap, units = parse(form, list, pos)
    if pos > 1 then index = index + gap end
    count(index, units)
  end
  count(from[INDEX], from[UNITS])
  if total > 0 then debit(w, now, total, period) end
end

-- Changes the algorithm or the calendar and keeps the count. Of a period that ends at another time, units whose jobs may be sent after
-- that count in the next one, too.
local function become(w, kind, now, period)
  if w[KIND] == kind then
    if not period or w[INDEX] == 0 then return end
    local _, to = calendar(period, now)
    if to == w[INDEX] then return end
    w[INDEX], w[UNITS] = to, 0
    if now >= to - w[WIDEN] then w[UNITS], w[LAST] = w[COUNT], w[FIRST] end
    return
  end
  local before = {unpack(w)}
  w[KIND], w[WIDTH] = kind, width(kind, w[SPAN])
  w[COUNT], w[INDEX], w[UNITS], w[FIRST], w[LAST], w[OLDER] = 0, 0, 0, 0, 0, ''
  seed(w, before, now, period)
end

-- Removes the windows that spec does not have.
local function dropWindows(q, spec)
  local kept = {}
  for i = 1, #q.windows do
    local w = q.windows[i]
    for j = 1, #spec do
      if spec[j].span == w[SPAN] then kept[#kept + 1] = w end
    end
  end
  q.windows = kept
end

-- Brings the quota's windows to now and to the newest revision seen; returns those of spec in their order. The windows of an
-- older revision that the quota does not have any more are returned empty, and not kept.
local function openWindows(q, spec, now, widen)
  local newer, known = spec.rev >= q.rev, #q.windows
  if newer then q.rev = spec.rev end
  local list = {}
  for i = 1, #spec do
    local s = spec[i]
    local w = findWindow(q, s.span)
    if not w then
      w = newWindow(s.kind, s.span)
      w[LIMIT] = s.limit
      if newer then
        w[WIDEN] = widen
        seed(w, longer(q.windows, known, now, s.span), now, s.period)
        q.windows[#q.windows + 1] = w
        q.renew = 0
      end
    end
    if widen > 0 then widenTo(w, widen, now) end
    expire(w, now, s.period)
    if newer then
      become(w, s.kind, now, s.period)
      setLimit(q, w, s.limit)
    end
    list[i] = w
  end
  return list
end
