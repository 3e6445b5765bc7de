-- Hands undispatched units back.
--
-- KEYS  1 clock, 2 the node's reply slot, then timelines and quotas
-- ARGV  1 header
--       2 per grant: timeline, rev, n, whole, rest, at, frac, units, granted_at, quotas, then their places, from 1, in the list of quotas
--       3 quotas, as parseSpecs reads them
-- Returns head.

local now -- set when the script runs

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

-- Frees slots after the last one before them: the end of the timeline, which holes that reach it join.
local function freeEnd(tl, grant, before)
  local holes, joined = tl[HOLES], false
  tl[LASTSLOT] = before
  while #holes > 0 and holes[#holes][HOLELAST] >= tl[LASTSLOT] do
    tl[LASTSLOT], joined = min(tl[LASTSLOT], holes[#holes][HOLEBEFORE]), true
    table.remove(holes)
  end
  if not joined and tl[N] == grant[N] and tl[WHOLE] == grant[WHOLE] and tl[REST] == grant[REST] and tl[TREV] == grant[TREV] then
    tl[AT], tl[FRAC] = grant[AT], grant[FRAC]
  else
    tl[AT], tl[FRAC] = tl[LASTSLOT] + tl[WHOLE], 0
    if tl[REST] > 0 then tl[AT] = tl[AT] + 1 end
  end
end

-- Frees slots, of this revision or an earlier one: the timeline ends before them if they are the last ones, and has a hole
-- otherwise. The grant is a timeline that begins with its first slot.
local function refundTimeline(key, grant, units)
  local v = call('GET', key)
  if not v or grant[N] == 0 or units > GRANT then return end
  local tl = readTimeline(v, now)
  if tl[N] == 0 then return end
  local before, last = micros(grant, grant[AT], grant[FRAC], -1), micros(grant, grant[AT], grant[FRAC], units - 1)
  if last == tl[LASTSLOT] then
    freeEnd(tl, grant, before)
  elseif last < now or last > tl[LASTSLOT] then
    return
  else
    tl[HOLES] = addHole(tl[HOLES], before, last)
  end
  saveTimeline(tl, key, now)
end

local specs, quotas = parseSpecs(ARGV[3]), {}

-- Takes units back that a quota granted at a time.
local function refundQuota(spec, granted, units)
  local key = spec.key
  local q = quotas[key] or loadQuota(KEYS[key], call('GET', KEYS[key]))
  quotas[key] = q
  if granted >= q.born then q.taken = max(0, q.taken - units) end
  for i = 1, #spec do
    local w = findWindow(q, spec[i].span)
    if w then
      expire(w, now, spec[i].period)
      refund(w, granted, units)
    end
  end
end

return once(function(at)
  local pos = 1
  now = at
  while pos <= #ARGV[2] do
    local timeline, rev, n, whole, rest, first, frac, units, granted, count, place
    timeline, rev, n, whole, rest, first, frac, units, granted, count, pos = parse('<I2I7I7I7I7I7I7I4I7B', ARGV[2], pos)
    refundTimeline(KEYS[timeline], {0, 0, 0, first, frac, n, whole, rest, rev}, units)
    for _ = 1, count do
      place, pos = parse('<I2', ARGV[2], pos)
      refundQuota(specs[place], granted, units)
    end
  end
  for _, q in pairs(quotas) do
    if #q.windows > 0 then saveQuota(q, now) end
  end
  return head(now)
end)
