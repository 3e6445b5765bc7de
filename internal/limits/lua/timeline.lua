-- The slots of a campaign.
--
-- A timeline is stored as: at frac n whole rest rev burst last high saved rivals holes, then each rival, as of quotas, and per
-- hole before and last, see model/hole.go.

-- Fields of timelines; SPACING and FRESH are computed when one is used.
local LINE = '<I7I7I7I7I7I7I7I7I7I7BB'
local RIVALS, SPACING, FRESH = 1, 2, 3
local AT, FRAC, N, WHOLE, REST, TREV, BURST, LASTSLOT, HIGHEST, SAVED, MEMBERS = 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14
local HOLES = 15 -- how many there are, and once they are read the list
local HOLEBEFORE, HOLELAST = 1, 2

-- The slot k places after (at, frac), and the first whole microsecond not before it.
local function advance(tl, at, frac, k)
  local f, n = frac + k * tl[REST], tl[N]
  return at + k * tl[WHOLE] + floor(f / n), f % n
end

local function micros(tl, at, frac, k)
  local a, f = advance(tl, at, frac, k)
  if f > 0 then return a + 1 end
  return a
end

-- How many slots from (at, frac) on lie not after last, at most limit.
local function countUntil(tl, at, frac, last, limit)
  if limit <= 0 or micros(tl, at, frac, 0) > last then return 0 end
  local step, k = tl[WHOLE] + tl[REST] / tl[N], limit - 1
  if step > 0 then k = max(0, min(k, floor((last - at) / step))) end
  while micros(tl, at, frac, k) > last do k = k - 1 end
  while k + 1 < limit and micros(tl, at, frac, k + 1) <= last do k = k + 1 end
  return k + 1
end

-- The first slot at or after from of a new timeline: at the campaign's phase on a common grid.
local function firstSlot(it, from)
  local grid = it[IWHOLE]
  if it[IREST] > 0 then grid = grid + 1 end
  grid = min(grid, 200000)
  if grid == 0 then return from end
  return from + (it[PHASE] - from) % grid
end

-- A timeline as it was stored, without the holes that have passed.
local function readTimeline(v, now)
  local tl = {false, 0, 0, parse(LINE, v)}
  local holes, rivals, pos = {}, readRivals(v, tl[16], tl[MEMBERS])
  for _ = 1, tl[HOLES] do
    local before, last
    before, last, pos = parse('<I7I7', v, pos)
    if last >= now then holes[#holes + 1] = {before, last} end
  end
  tl[RIVALS], tl[HOLES] = rivals, holes
  return tl
end

-- The campaign's timeline, brought to the ask's revision if that is newer, and whether it has changed. One from before the clock went
-- back is none.
local function loadTimeline(it, v, now)
  local tl = v and readTimeline(v, now)
  if not tl or tl[SAVED] > now then
    return {{}, 0, 0, firstSlot(it, now), 0, it[IN], it[IWHOLE], it[IREST], it[IREV], it[IBURST], 0, 0, 0, 0, {}}, true
  end
  if it[IREV] <= tl[TREV] then return tl, false end
  local changed = tl[N] ~= it[IN] or tl[WHOLE] ~= it[IWHOLE] or tl[REST] ~= it[IREST]
  tl[TREV], tl[BURST], tl[N], tl[WHOLE], tl[REST] = it[IREV], it[IBURST], it[IN], it[IWHOLE], it[IREST]
  tl[SAVED] = 0 -- the time to live depends on these
  if changed and tl[N] > 0 then
    local spacing = tl[WHOLE]
    if tl[REST] > 0 then spacing = spacing + 1 end
    tl[AT], tl[FRAC] = max(now, tl[LASTSLOT] + spacing), 0
    if tl[LASTSLOT] == 0 then tl[AT] = firstSlot(it, now) end
  end
  return tl, true
end

-- Kept for two days and three spacings at least: with the timeline its last slot would be lost; and for a month where unused slots
-- are credited, which would be lost as well.
local function saveTimeline(tl, key, now)
  local HALF_HOUR = 1800 * SECOND
  local renew = floor(now / HALF_HOUR) > floor(tl[SAVED] / HALF_HOUR)
  tl[SAVED] = now
  local rivals, holes = tl[RIVALS], tl[HOLES]
  local out = {pack(LINE, tl[4], tl[5], tl[6], tl[7], tl[8], tl[9], tl[10], tl[11], tl[12], tl[13], #rivals, #holes)}
  packRivals(out, rivals)
  for i = 1, #holes do out[#out + 1] = pack('<I7I7', holes[i][HOLEBEFORE], holes[i][HOLELAST]) end
  local v = table.concat(out)
  if renew then
    local life = 172800000 + floor(tl[WHOLE] * 3 / 1000)
    if tl[BURST] > 0 then life = life + 2678400000 end
    call('SET', key, v, 'PX', string.format('%d', life))
  else
    call('SET', key, v, 'KEEPTTL')
  end
  return v
end

-- Whether a daemon was recently cut short for want of slots.
local function wanted(tl, now)
  for i = 1, #tl[RIVALS] do
    local r = tl[RIVALS][i]
    if r[DEMAND] > 0 and now - r[SEEN] <= 5 * SECOND then return true end
  end
  return false
end

-- Whether a daemon was refused by a quota, and asks as it was told; or has answered for the store until now, since many wait.
local function refused(tl, it, now)
  local rivals, demands = tl[RIVALS], it[DEMANDS] or {}
  for i = 1, #rivals do
    if isDue(rivals[i], now, 2 * it[QUANTUM]) then return true end
  end
  for i = 1, #demands do
    if demands[i].joint then return true end
  end
  return false
end

-- Moves the timeline past the slots a daemon holds, in case the store lost them, and past unused time. A slow timeline
-- that has not idled is kept if its slot is still in time; otherwise it starts again at its phase, unless a quota held it up.
local function catchUp(tl, it, now)
  local spacing, lastGranted = tl[SPACING], it[LASTGRANTED]
  if lastGranted > tl[HIGHEST] then
    tl[HIGHEST], tl[LASTSLOT] = lastGranted, max(tl[LASTSLOT], lastGranted)
    if micros(tl, tl[AT], tl[FRAC], 0) < lastGranted + spacing then
      tl[AT], tl[FRAC] = lastGranted + spacing, 0
    end
  end
  local credit = 0
  if tl[BURST] > 0 then
    credit = advance(tl, 0, 0, min(tl[BURST], GRANT, floor(1125899906842624 / spacing)))
  end
  local from = now - credit
  if tl[AT] >= from then return end
  if spacing >= 10000 and (it[WANT] > 1 and tl[AT] + min(spacing, 200000) >= from or wanted(tl, now)) then
    if tl[AT] >= from - floor(it[LATE] / 4) then return end
    if not refused(tl, it, now) then from = firstSlot(it, from) end
  end
  tl[AT], tl[FRAC] = from, 0
end

-- A window that is spent evenly is a timeline of its own, whose slots are a limit's part of the span apart; for a fixed
-- one, a part of what is left of it. This is that timeline from its first free slot on. One that was kept for the asker keeps its place
-- until its part of the span is over.
local function pacing(w, now, kept)
  local at, frac, n, per = w[PAT], w[PFRAC], w[LIMIT], w[SPAN]
  if at < now and not (kept and at > now - floor(per / max(1, n))) then at, frac = now, 0 end
  if w[KIND] == FIXED and w[INDEX] > 0 then frac, n, per = 0, remaining(w), max(0, w[INDEX] - at) end
  return {0, 0, 0, at, frac, n, floor(per / n), per % n}
end

-- How many of the units that remain begin up to the horizon.
local function paced(it, w, now, kept)
  local room = min(remaining(w), GRANT)
  if room == 0 then return 0 end
  local p = pacing(w, now, kept)
  return countUntil(p, p[AT], p[FRAC], now + it[HORIZON], room)
end

-- Moves the pace past units that are about to be debited.
local function spend(w, now, units, kept)
  if units == 0 or remaining(w) == 0 then return end
  local p = pacing(w, now, kept)
  w[PAT], w[PFRAC] = advance(p, p[AT], p[FRAC], units)
end
