-- Grants slots to one daemon, for up to 256 campaigns at once, in order and atomically.
--
-- KEYS  1 clock, 2 the node's reply slot, then timelines, gates and quotas, each once
-- ARGV  1 header, 2 node
--       3 per item: timeline, gate, rev, n, whole, rest, burst, phase, want, held_until, horizon, quantum, late, cost,
--         weights, quotas, then the weights and the quotas
--         timeline and gate (0: none) are indexes into KEYS, quotas are positions in the list of quotas
--       4 quotas, as parseSpecs reads them
--       5 the length of the prefix before the campaign in the key of a timeline
-- Returns head, then per item
--   units at frac n whole rest rev next bound quota window competitors daemons shadowed, then each shadowed quota and
--   units, and per window of each quota remaining and reset_at.
--   bound as in delivery.Binding; quotas and windows are positions, from 0.
--
-- A timeline is stored as: at frac n whole rest rev burst last high renew nodes, then per node id seen due cut
-- served; then, if it has holes, how many, and before and last of each.

local RATE, QUOTABOUND, GATE, HELD = 1, 2, 3, 4

-- Fields of items.
local ITEM = '<I2I2I7I7I7I7I7I4I4I7I5I5I5I4I2B'
local CAMPAIGN, WEIGHTLIST, CLAIMS = 1, 2, 3 -- beside the format; false where there are none
local TIMELINE, ISGATE, IREV, IN, IWHOLE, IREST, IBURST, PHASE, WANT, HELDUNTIL, HORIZON, QUANTUM, LATE, ICOST, WEIGHTS,
  QUOTAS = 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19
-- Fields of timelines; SPACING and FRESH are computed when one is used.
local LINE = '<I7I7I7I7I7I7I7I7I7I7B'
local NODES, SPACING, FRESH = 1, 2, 3
local AT, FRAC, N, WHOLE, REST, TREV, BURST, LASTSLOT, HIGHEST, RENEW, MEMBERS = 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14
local HOLES = 15 -- beside the format
local MEMBER = '<Bc0I7I7I7I7'
local CUT, SERVED = 5, 6
local RESULT = '<I4I7I7I7I7I7I7I7BBBI2I2B'
local SHADOW, EVEN = 1, 2

local again = stored(KEYS[2])
if again then return again end
local now, steps = clock(KEYS[1], true)
if not now then return steps end
local NODE = ARGV[2]
-- The values of the keys, by their position less 2.
local held = {}
if #KEYS > 2 then held = call('MGET', unpack(KEYS, 3)) end

-- The answer to the current item: one table for all, since growing one per item costs more than filling it.
local g = {}

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

-- Shares among nodes, whose units cost 1 and whose demand is unbounded: the largest n such that fewer than room
-- units go before the n-th. That count is convex in n, so Newton's steps approach it from above and never pass it.
local function shareNodes(self, room, want, others)
  local n = min(want, room)
  while n > 0 do
    local ahead, slope, x = n - 1, 1, self + n - 1
    for i = 1, #others do
      local b = x - others[i][SERVED] + others[i][TIE]
      if b > 0 then ahead, slope = ahead + b, slope + 1 end
    end
    if ahead < room then return n end
    n = n - floor((ahead - room + slope) / slope)
  end
  return 0
end

-- The same for rivals, with costs and demands, by bisection.
local function shareRivals(self, room, want, others)
  local lo, hi = 0, max(0, min(want, room))
  if #others == 0 then return hi end
  while lo < hi do
    local i = floor((lo + hi) / 2)
    local ahead, x = i, self[SERVICE] + i * self[COST]
    for j = 1, #others do
      local o = others[j]
      local d = x - o[SERVICE]
      if d >= 0 then
        local n = floor(d / o[COST])
        if d % o[COST] ~= 0 or o[TIE] == 1 then n = n + 1 end
        ahead = ahead + min(n, o[DEMAND])
      end
    end
    if ahead >= room then hi = i else lo = i + 1 end
  end
  return lo
end

-- The units of the jobs at the head that begin within the first soft units and end within the first hard ones.
local function jobs(it, soft, hard)
  soft = min(soft, it[WANT])
  local weights = it[WEIGHTLIST]
  if not weights then return max(0, min(soft, hard)) end
  local units = 0
  for i = 1, #weights do
    if units >= soft or units + weights[i] > hard then break end
    units = units + weights[i]
  end
  return units
end

local function weightAfter(it, units)
  local weights = it[WEIGHTLIST]
  if not weights then return 1 end
  for i = 1, #weights do
    if units <= 0 then return weights[i] end
    units = units - weights[i]
  end
  return 1
end

-- Removes outdated entries from a list of nodes or rivals and finds id in it. If id is missing, there is room
-- for one more afterwards: the one not seen for longest is removed if necessary. Nobody is awaited for longer than most after
-- the last ask.
local function join(list, id, fresh, grace, most)
  if #list == 1 and list[1][ID] == id then return list, list[1] end
  local kept, self = {}, nil
  for i = 1, #list do
    local e = list[i]
    if e[ID] == id then
      self = e
      kept[#kept + 1] = e
    elseif now - e[SEEN] <= fresh or now <= min(e[DUE] + grace, e[SEEN] + most) then
      kept[#kept + 1] = e
    end
  end
  if not self and #kept >= 64 then
    local oldest = 1
    for i = 1, #kept do
      if kept[i][SEEN] < kept[oldest][SEEN] then oldest = i end
    end
    table.remove(kept, oldest)
  end
  return kept, self
end

-- Timelines -------------------------------------------------------------------------------------------------------

-- The first slot at or after from of a new timeline: at the campaign's phase on a common grid.
local function firstSlot(it, from)
  local grid = it[IWHOLE]
  if it[IREST] > 0 then grid = grid + 1 end
  grid = min(grid, 200000)
  if grid == 0 then return from end
  return from + (it[PHASE] - from) % grid
end

-- The campaign's timeline, brought to the ask's revision if that is newer, and whether it has changed.
local function loadTimeline(it, v)
  if not v then
    return {{}, 0, 0, firstSlot(it, now), 0, it[IN], it[IWHOLE], it[IREST], it[IREV], it[IBURST], 0, 0, 0, 0, {}}, true
  end
  local tl = {false, 0, 0, parse(LINE, v)}
  local nodes, pos = {}, tl[15]
  for i = 1, tl[MEMBERS] do
    local e = {0, parse(MEMBER, v, pos)}
    nodes[i], pos = e, e[7]
  end
  tl[NODES], tl[HOLES] = nodes, holesOf(v, pos, now)
  if it[IREV] <= tl[TREV] then return tl, false end
  local changed = tl[N] ~= it[IN] or tl[WHOLE] ~= it[IWHOLE] or tl[REST] ~= it[IREST]
  tl[TREV], tl[BURST], tl[N], tl[WHOLE], tl[REST] = it[IREV], it[IBURST], it[IN], it[IWHOLE], it[IREST]
  tl[RENEW] = 0 -- the time to live depends on these
  if changed and tl[N] > 0 then
    local spacing = tl[WHOLE]
    if tl[REST] > 0 then spacing = spacing + 1 end
    tl[AT], tl[FRAC] = max(now, tl[LASTSLOT] + spacing), 0
    if tl[LASTSLOT] == 0 then tl[AT] = firstSlot(it, now) end
  end
  return tl, true
end

-- Kept for an hour and three spacings at least: with the timeline its last slot would be lost; and for a month where unused slots
-- are credited, which would be lost as well.
local function saveTimeline(tl, key)
  local renew = now >= tl[RENEW]
  if renew then tl[RENEW] = now + 1800000000 end
  local nodes = tl[NODES]
  local v = pack(LINE, tl[4], tl[5], tl[6], tl[7], tl[8], tl[9], tl[10], tl[11], tl[12], tl[13], #nodes)
  for i = 1, #nodes do
    local e = nodes[i]
    v = v .. pack(MEMBER, #e[2], e[2], e[3], e[4], e[5], e[6])
  end
  v = v .. packHoles(tl[HOLES])
  if renew then
    local life = 5400000 + floor(tl[WHOLE] * 3 / 1000)
    if tl[BURST] > 0 then life = life + 2678400000 end
    call('SET', key, v, 'PX', string.format('%d', life))
  else
    call('SET', key, v, 'KEEPTTL')
  end
  return v
end

-- Whether a node was recently cut short for want of slots.
local function wanted(tl)
  local nodes = tl[NODES]
  for i = 1, #nodes do
    local cut = nodes[i][CUT]
    if cut > 0 and now - cut <= 5 * SECOND then return true end
  end
  return false
end

-- Moves the timeline past the slots a daemon holds, in case the store lost them, and past unused time. A slow timeline
-- that has not idled is kept if its slot is still in time; otherwise it starts again at its phase.
local function catchUp(tl, it)
  local spacing, heldUntil = tl[SPACING], it[HELDUNTIL]
  if heldUntil > tl[HIGHEST] then
    tl[HIGHEST], tl[LASTSLOT] = heldUntil, max(tl[LASTSLOT], heldUntil)
    if micros(tl, tl[AT], tl[FRAC], 0) < heldUntil + spacing then
      tl[AT], tl[FRAC] = heldUntil + spacing, 0
    end
  end
  local credit = 0
  if tl[BURST] > 0 then
    credit = advance(tl, 0, 0, min(tl[BURST], GRANT, floor(1125899906842624 / spacing)))
  end
  local from = now - credit
  if tl[AT] >= from then return end
  if spacing >= 10000 and (it[WANT] > 1 and tl[AT] + min(spacing, 200000) >= from or wanted(tl)) then
    if tl[AT] >= from - floor(it[LATE] / 4) then return end
    from = firstSlot(it, from)
  end
  tl[AT], tl[FRAC] = from, 0
end

-- Whether a node is expected to ask for units of a quota soon.
local function awaited(e, grace)
  return e[DUE] > 0 and e[DUE] - SECOND <= now and now <= e[DUE] + grace
end

local function slotShare(it, tl, self, at, frac, open)
  local nodes = tl[NODES]
  if #nodes == 1 then
    if self[SERVED] < 0 then self[SERVED] = 0 end
    return open
  end
  local others, low, high, found, tie, grace = {}, 0, 0, false, 1, 2 * it[QUANTUM]
  for i = 1, #nodes do
    local e = nodes[i]
    if e == self then
      tie = 0
    else
      high = max(high, e[SERVED])
      local cut = e[CUT] > 0 and now - e[CUT] <= tl[FRESH]
      if cut then
        e[TIE] = tie
        others[#others + 1] = e
      end
      if cut or awaited(e, grace) then
        if not found or e[SERVED] < low then low, found = e[SERVED], true end
      end
    end
  end
  g.competitors = #others + 1
  if self[SERVED] < 0 then
    if found then self[SERVED] = max(0, low - 1) else self[SERVED] = high end
  elseif found then
    self[SERVED] = max(self[SERVED], low - (2 * floor(it[HORIZON] / tl[SPACING]) + 8 + weightAfter(it, 0)))
  end
  if #others == 0 then return open end
  local near = countUntil(tl, at, frac, now + floor(it[HORIZON] / 2), open)
  return max(near, shareNodes(self[SERVED], open, open, others))
end

local function rateNext(it, tl, at, frac, units, open)
  local next = micros(tl, at, frac, max(units, open)) - it[HORIZON]
  if units < open then next = min(next, micros(tl, at, frac, units) - floor(it[HORIZON] / 2)) end
  return max(next, now + 1)
end

-- Quotas ----------------------------------------------------------------------------------------------------------

local specs, quotas = parseSpecs(ARGV[4]), {}

-- The state of one quota for an item: its windows, brought to now and to the newest revision.
local function openQuota(it, i, spec)
  local key = spec.key
  local q = quotas[key]
  if not q then
    q = loadQuota(KEYS[key], held[key - 2])
    quotas[key] = q
  end
  local windows = openWindows(q, spec, now, it[HORIZON] + it[LATE])
  if #q.windows > #spec and q.rev == spec.rev then dropWindows(q, spec) end
  local flags = spec.flags
  local shadow = flags % 2 == SHADOW
  return {
    index = i - 1, spec = spec, held = q, windows = windows, next = 0,
    shadow = shadow, even = flags >= EVEN, binds = not shadow and spec.part > 0,
    self = false, tight = false, window = 0, room = 0, pace = 0, share = 0, kept = 0,
  }
end

-- A window that is spent evenly is a timeline of its own, whose slots are a limit's part of the span apart; for a fixed
-- one, a part of what is left of it. This is that timeline from its first free slot on.
local function pacing(w)
  local at, frac, n, per = w[PAT], w[PFRAC], w[LIMIT], w[SPAN]
  if at < now then at, frac = now, 0 end
  if w[KIND] == FIXED and w[INDEX] > 0 then frac, n, per = 0, remaining(w), max(0, w[INDEX] - at) end
  return {0, 0, 0, at, frac, n, floor(per / n), per % n}
end

-- How many of the units that remain begin up to the horizon.
local function paced(it, w)
  local room = min(remaining(w), GRANT)
  if room == 0 then return 0 end
  local p = pacing(w)
  return countUntil(p, p[AT], p[FRAC], now + it[HORIZON], room)
end

-- Moves the pace past units that are about to be debited.
local function spend(w, units)
  if units == 0 or remaining(w) == 0 then return end
  local p = pacing(w)
  w[PAT], w[PFRAC] = advance(p, p[AT], p[FRAC], units)
end

-- Finds the window with the least room. A pace is soft, as that of a timeline: the first unit of a job must be within the
-- horizon. What remains is hard: all of the job must fit.
local function measure(it, c)
  local room, pace, windows, even = GRANT, nil, c.windows, c.even
  for j = 1, #windows do
    local w = windows[j]
    local left = remaining(w)
    room = min(room, left)
    if even then left = paced(it, w) end
    if not pace or left < pace then pace, c.tight, c.window = left, w, j - 1 end
  end
  c.room, c.pace = room, min(pace, GRANT)
end

-- Counts granted units in all windows of a quota, by the same amount. A quota in shadow mode counts what it would have
-- granted, and reports the rest.
local function debitQuota(it, c, units)
  if c.spec.part == 0 then return end
  if c.shadow then
    measure(it, c)
    local would = jobs(it, min(units, c.pace), c.room)
    if would < units then
      local list = g.shadowed or {}
      g.shadowed = list
      list[#list + 1] = pack('<BI4', c.index, units - would)
      units = would
    end
  end
  local windows, spec, even = c.windows, c.spec, c.even
  for j = 1, #windows do
    if even then spend(windows[j], units) end
    if units > 0 then debit(windows[j], now, units, spec[j].period) end
  end
end

-- Until when room is kept for a campaign that said how much it can use. It may be gone: its daemons ask every 12.5 s at least.
local CLAIM = 15 * SECOND
local function claimEnd(r, grace) return min(r[DUE] + grace, r[SEEN] + CLAIM) end

-- How many units of a quota's room fall to the campaign.
local function rivalShare(it, c, slots)
  local q, id, grace = c.held, it[CAMPAIGN], 2 * it[QUANTUM]
  local rivals, self = join(q.rivals, id, SECOND, grace, CLAIM)
  local isNew = not self
  if isNew then
    self = {0, id, 0, 0, 0, 0, 0, 0}
    rivals[#rivals + 1] = self
  end
  q.rivals, c.self = rivals, self
  self[COST] = it[ICOST]
  if #rivals == 1 then
    return min(slots, c.pace)
  end
  local active = self[DEMAND] > 0 and now <= claimEnd(self, grace)
  local others, low, high, tie = {}, 0, 0, 1
  for i = 1, #rivals do
    local r = rivals[i]
    if r == self then
      tie = 0
    else
      high = max(high, r[SERVICE])
      local till = claimEnd(r, grace)
      if r[DEMAND] > 0 and now <= till then
        if #others == 0 or r[SERVICE] < low then low = r[SERVICE] end
        if #others == 0 or till < c.kept then c.kept = till end
        r[TIE] = tie
        others[#others + 1] = r
      end
    end
  end
  if #others == 0 then low = high end
  if not isNew and (active or #others == 0) then low = low - min(c.tight[LIMIT], GRANT) * self[COST] end
  self[SERVICE] = max(self[SERVICE], low)
  local n = shareRivals(self, c.pace, slots, others)
  if n == min(slots, c.pace) then c.kept = 0 end
  return n
end

local function quotaShare(it, tl, self, slots)
  local soft, hard, quotas = slots, GRANT, it[CLAIMS]
  for i = 1, #quotas do
    local c = quotas[i]
    if c.binds then
      measure(it, c)
      c.share = rivalShare(it, c, slots)
      soft, hard = min(soft, c.share), min(hard, c.room)
    end
  end
  if soft >= slots and hard >= slots then return slots end
  -- The campaign's daemons share the campaign's units.
  local others, tie, grace, nodes = {}, 1, 2 * it[QUANTUM], tl[NODES]
  for i = 1, #nodes do
    local e = nodes[i]
    if e == self then
      tie = 0
    elseif awaited(e, grace) then
      e[TIE] = tie
      others[#others + 1] = e
    end
  end
  if #others > 0 then soft = shareNodes(self[SERVED], soft, soft, others) end
  return jobs(it, min(soft, slots), min(hard, slots))
end

-- When the window can grant a job of units, which fit the limit; 0 if it can now.
local function windowNext(it, c, w, units)
  local next = 0
  if remaining(w) < units then next = freeAt(w, units) end
  if c.even then
    local first = w[PAT] - it[HORIZON]
    if w[PFRAC] > 0 then first = first + 1 end
    if first > now then next = max(next, first) end
  end
  return next
end

-- When there is more room, of which some may fall to the campaign.
local function growsAt(it, c)
  local w = c.tight
  if c.even then
    local n = paced(it, w)
    if n < remaining(w) then
      local p = pacing(w)
      return micros(p, p[AT], p[FRAC], n) - it[HORIZON]
    end
  end
  if w[COUNT] == 0 then return math.huge end
  return freeAt(w, remaining(w) + 1)
end

local function quotaNext(it, units)
  local bound, next, never, weight = nil, 0, false, weightAfter(it, units)
  for _, c in ipairs(it[CLAIMS]) do
    if c.binds then
      if not bound or min(c.share, c.room) < min(bound.share, bound.room) then bound = c end
      for _, w in ipairs(c.windows) do
        if weight > w[LIMIT] then
          never = true
        else
          c.next = max(c.next, windowNext(it, c, w, weight))
        end
      end
      if c.next == 0 and c.kept > 0 then c.next = max(now + it[QUANTUM], min(c.kept + 1, growsAt(it, c))) end
      next = max(next, c.next)
    end
  end
  g.quota, g.window = bound.index, bound.window
  if never then return 0 end
  if next == 0 then return now + it[QUANTUM] end
  return next
end

-- Records what each quota granted the campaign, and how much more the campaign can use.
local function settleQuotas(it, tl, units, slots, want)
  for _, c in ipairs(it[CLAIMS]) do
    local r = c.self
    if r then
      r[SEEN], r[DEMAND], r[DUE] = now, 0, 0
      r[SERVICE] = r[SERVICE] + units * r[COST]
      if units < want and g.next > 0 and g.next <= max(now, c.next) + SECOND then
        if units < slots and min(c.share, c.room) < slots then r[RCUT] = g.next end
        local use = g.next - now + 2 * it[QUANTUM]
        if now <= r[RCUT] + c.tight[SPAN] then use = c.tight[SPAN] end
        r[DUE], r[DEMAND] = g.next, min(want - units, floor(use / tl[SPACING]) + 1)
      end
      local rivals, low = c.held.rivals, r[SERVICE]
      for i = 1, #rivals do low = min(low, rivals[i][SERVICE]) end
      for i = 1, #rivals do rivals[i][SERVICE] = rivals[i][SERVICE] - low end
    end
  end
end

-- Gates -----------------------------------------------------------------------------------------------------------

local gates = {}

local function loadGate(key)
  local g = gates[key]
  if g == nil then
    local v = held[key - 2]
    g = false
    if v then
      local at, mode, since = gateOf(v)
      g = {at = at, mode = mode, since = since, probe = mode ~= '0'}
    end
    gates[key] = g
  end
  return g
end

-- One item --------------------------------------------------------------------------------------------------------

local function take(it, tl)
  for i = 1, it[QUOTAS] do
    local c = it[CLAIMS][i]
    if c.spec.rev < c.held.rev then
      -- A daemon with an old revision of the quota waits until its catalog is up to date.
      g.bound, g.quota, g.next = QUOTABOUND, c.index, now + it[QUANTUM]
      return
    end
  end
  catchUp(tl, it)
  local at, frac, want = tl[AT], tl[FRAC], jobs(it, it[WANT], GRANT)
  local limit, gate, horizon = want, false, now + it[HORIZON]
  local gateKey = it[ISGATE]
  if gateKey > 0 then gate = loadGate(gateKey) end
  if gate and not gate.probe and gate.at <= now then gate = false end
  if gate then
    if gate.at > now and (gate.probe or gate.at > horizon) then
      g.bound, g.next = GATE, gate.at
      if not gate.probe then g.next = gate.at - it[HORIZON] end
      return
    end
    if gate.probe then
      limit = jobs(it, 1, GRANT)
    elseif at < gate.at then
      at, frac = gate.at, 0
    end
  end

  local hole, last = false, horizon
  if not gate and not it[WEIGHTLIST] then -- a heavy job might not fit
    for _, h in ipairs(tl[HOLES]) do
      local from = max(now, h[HOLEBEFORE] + tl[SPACING])
      if from <= h[HOLELAST] then
        if from <= horizon then hole, at, frac, last = h, from, 0, min(horizon, h[HOLELAST]) end
        break
      end
    end
  end
  local open = countUntil(tl, at, frac, last, GRANT)
  local nodes, self = join(tl[NODES], NODE, tl[FRESH], 2 * it[QUANTUM], math.huge)
  if not self then
    self = {0, NODE, 0, 0, 0, -1}
    nodes[#nodes + 1] = self
  end
  tl[NODES], g.daemons = nodes, #nodes
  local slots = min(jobs(it, slotShare(it, tl, self, at, frac, open), GRANT), limit)
  local units = slots
  if slots > 0 and it[CLAIMS] then units = quotaShare(it, tl, self, slots) end
  if units > 0 then
    g.units, g.at, g.frac = units, at, frac
    if hole then
      hole[HOLEBEFORE] = micros(tl, at, frac, units - 1)
    else
      tl[LASTSLOT] = micros(tl, at, frac, units - 1)
      tl[HIGHEST] = max(tl[HIGHEST], tl[LASTSLOT])
      tl[AT], tl[FRAC] = advance(tl, at, frac, units)
    end
    if it[CLAIMS] then
      for _, c in ipairs(it[CLAIMS]) do debitQuota(it, c, units) end
    end
    if gate and gate.probe then
      gate.at = now + SECOND
      if gate.mode == '2' then gate.mode = '4' end
      call('SET', KEYS[gateKey], string.format('%d %s %d', gate.at, gate.mode, gate.since), 'PX', 86400000)
    end
  end
  self[SEEN], self[CUT], self[DUE] = now, 0, 0
  self[SERVED] = self[SERVED] + units
  if units < slots then
    g.bound = QUOTABOUND
    g.next = quotaNext(it, units)
    self[DUE] = g.next
  elseif gate and gate.probe and units > 0 and units < want then
    g.bound, g.next = GATE, gate.at
  elseif units < want then
    g.bound, g.next = RATE, rateNext(it, tl, at, frac, units, open)
    self[CUT] = now
  end
  if it[CLAIMS] then settleQuotas(it, tl, units, slots, want) end
end

local function parseItem(blob, pos)
  local it = {false, false, false, parse(ITEM, blob, pos)}
  pos = it[20]
  if it[WEIGHTS] > 0 then -- one more than there are
    local weights = {}
    for i = 1, it[WEIGHTS] - 1 do weights[i], pos = parse('<I4', blob, pos) end
    it[WEIGHTLIST] = weights
  end
  if it[QUOTAS] > 0 then
    local list = {}
    for i = 1, it[QUOTAS] do
      local index
      index, pos = parse('<I2', blob, pos)
      list[i] = openQuota(it, i, specs[index])
    end
    it[CLAIMS] = list
  end
  return it, pos
end

local function reply(out, it, tl)
  local shadowed = g.shadowed
  out[#out + 1] = pack(RESULT, g.units, g.at, g.frac, tl[N], tl[WHOLE], tl[REST], tl[TREV], g.next, g.bound, g.quota,
    g.window, g.competitors, g.daemons, shadowed and #shadowed or 0)
  if shadowed then out[#out + 1] = table.concat(shadowed) end
  local claims = it[CLAIMS]
  for i = 1, it[QUOTAS] do
    local windows = claims[i].windows
    for j = 1, #windows do out[#out + 1] = pack('<I7I7', remaining(windows[j]), resetAt(windows[j], now)) end
  end
end

local out, items, pos, prefix, it = {head(now, steps)}, ARGV[3], 1, num(ARGV[5]) + 1, nil
while pos <= #items do
  it, pos = parseItem(items, pos)
  g.units, g.at, g.frac, g.next, g.bound, g.quota, g.window, g.competitors, g.daemons = 0, 0, 0, 0, 0, 0, 0, 1, 1
  g.shadowed = nil
  local key = KEYS[it[TIMELINE]]
  if it[QUOTAS] > 0 then it[CAMPAIGN] = sub(key, prefix) end
  local tl, changed = loadTimeline(it, held[it[TIMELINE] - 2])
  if tl[N] == 0 then
    g.bound = HELD
  elseif it[WANT] > 0 then
    changed = true
    tl[SPACING] = tl[WHOLE]
    if tl[REST] > 0 then tl[SPACING] = tl[SPACING] + 1 end
    tl[FRESH] = max(SECOND, 2 * tl[SPACING])
    take(it, tl)
  end
  if changed then held[it[TIMELINE] - 2] = saveTimeline(tl, key) end
  reply(out, it, tl)
end
for _, q in pairs(quotas) do saveQuota(q, now) end
return store(KEYS[2], table.concat(out))
