-- Grants slots to one daemon, for up to 256 campaigns at once, in order and atomically.
--
-- KEYS  1 clock, 2 the node's reply slot, then timelines, gates and quotas, each once
-- ARGV  1 header, 2 node
--       3 per item: timeline, gate, rev, n, whole, rest, burst, phase, want, held_until, horizon, quantum, late, cost,
--         weights, quotas, then the weights and the quotas
--         timeline and gate (0: none) are indexes into KEYS, quotas are positions in the list of quotas
--       4 quotas, as parseSpecs reads them
--       5 the length of the prefix before the campaign in the key of a timeline
--       6 per quota cost, all, left: see delivery.Joint
-- Returns head, then per item
--   units at frac n whole rest rev next bound quota window competitors daemons shadowed, then each shadowed quota and
--   units, and per window of each quota remaining, reset_at and, where nothing remains,
--   when the next unit will, 0 for never.
--   bound as in delivery.Binding; quotas and windows are positions, from 0. window is 255 where the caller's revision of the
--   quota is an old one; at is then the newest.

local RATE, QUOTABOUND, GATE, HELD = 1, 2, 3, 4
local BEHIND = 255 -- in place of a window: the caller's revision of the quota is an old one

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

local function rateNext(it, tl, at, frac, units, open)
  local next = micros(tl, at, frac, max(units, open)) - it[HORIZON]
  if units < open then next = min(next, micros(tl, at, frac, units) - floor(it[HORIZON] / 2)) end
  return max(next, now + 1)
end

-- Quotas ----------------------------------------------------------------------------------------------------------

local specs, quotas = parseSpecs(ARGV[4]), {}

-- The state of one quota for an item.
local function openQuota(it, i, spec)
  local key = spec.key
  local q = quotas[key]
  if not q then
    q = loadQuota(KEYS[key], held[key - 2])
    quotas[key] = q
  end
  local opened = windowsOf(q, spec, now, it[HORIZON] + it[LATE])
  local flags = spec.flags
  local shadow = flags % 2 == SHADOW
  return {
    index = i - 1, spec = spec, joint = spec.cost > 0, held = q, opened = opened, windows = opened.windows, next = 0,
    shadow = shadow, even = flags >= EVEN, binds = not shadow and spec.part > 0,
    self = false, tight = false, window = 0, room = 0, pace = 0, share = 0, kept = 0,
  }
end

-- Counts granted units in all windows of a quota, by the same amount. A quota in shadow mode counts what it would have
-- granted, and reports the rest.
local function debitQuota(it, c, units)
  if c.spec.part == 0 then return end
  if c.shadow then
    measure(it, c, now)
    local would = jobs(it, min(units, c.pace), c.room)
    if would < units then
      local list = g.shadowed or {}
      g.shadowed = list
      list[#list + 1] = pack('<BI4', c.index, units - would)
      units = would
    end
  end
  local windows, spec, even = c.windows, c.spec, c.even
  changedWindows(c.opened)
  for j = 1, #windows do
    if even then spend(windows[j], now, units) end
    if units > 0 then debit(windows[j], now, units, spec[j].period) end
  end
end

-- How many units of a quota's room fall to the campaign, or to all those of the daemon that it asks for.
local function rivalShare(it, c, slots)
  local grace, name, cost = 2 * it[QUANTUM], it[CAMPAIGN], it[ICOST]
  if c.joint then name, cost = ' ' .. NODE, c.spec.cost end
  local self, isNew = joinRivals(c.held, name, now, grace)
  local rivals = c.held.rivals
  c.self = self
  self[COST] = cost
  if #rivals == 1 then
    return min(slots, c.pace)
  end
  local active = self[DEMAND] > 0 and now <= claimEnd(self, grace)
  if active and c.pace == 0 then return 0 end -- there is nothing to share
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
      measure(it, c, now)
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
    elseif awaited(e, now, grace) then
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
    local n = paced(it, w, now)
    if n < remaining(w) then
      local p = pacing(w, now)
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
  if next <= now then return now + it[QUANTUM] end
  return next
end

-- Records what each quota granted the campaign, and how much more the campaign can use.
local function settleQuotas(it, tl, units, slots, want)
  for _, c in ipairs(it[CLAIMS]) do
    local r = c.self
    if r then
      local due = r[DUE]
      r[SEEN], r[DEMAND], r[DUE] = now, 0, 0
      r[SERVICE] = r[SERVICE] + units * r[COST]
      if units < want and g.next > 0 and g.next <= max(now, c.next) + SECOND then
        if units < slots and min(c.share, c.room) < slots then r[RCUT] = g.next end
        local use = g.next - now + 2 * it[QUANTUM]
        if now <= r[RCUT] + c.tight[SPAN] then use = c.tight[SPAN] end
        r[DUE], r[DEMAND] = g.next, min(want - units, floor(use / tl[SPACING]) + 1)
        if c.joint then r[DEMAND] = c.spec.all end
      elseif c.joint and c.spec.left > 0 then
        r[DUE], r[DEMAND] = max(due, now + it[QUANTUM]), c.spec.left -- it asks for them in a moment
      end
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
      g.bound, g.quota, g.window, g.at, g.next = QUOTABOUND, c.index, BEHIND, c.held.rev, now + it[QUANTUM]
      return
    end
  end
  catchUp(tl, it, now)
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
  local nodes, self = joinNodes(tl[NODES], NODE, now, tl[FRESH], 2 * it[QUANTUM])
  if not self then
    self = {0, NODE, 0, 0, 0, -1}
    nodes[#nodes + 1] = self
  end
  tl[NODES], g.daemons = nodes, #nodes
  local mine
  mine, g.competitors = slotShare(it, tl, self, now, at, frac, open)
  local slots = min(jobs(it, mine, GRANT), limit)
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

local function reply(out, it, tl)
  local shadowed = g.shadowed
  out[#out + 1] = pack(RESULT, g.units, g.at, g.frac, tl[N], tl[WHOLE], tl[REST], tl[TREV], g.next, g.bound, g.quota,
    g.window, g.competitors, g.daemons, shadowed and #shadowed or 0)
  if shadowed then out[#out + 1] = table.concat(shadowed) end
  local claims = it[CLAIMS]
  for i = 1, it[QUOTAS] do
    out[#out + 1] = stateOf(claims[i].opened, now)
  end
end

-- Serves one item: opens its quotas, takes from its timeline and them, and appends the answer to out.
local function serve(it, prefix, out)
  g.units, g.at, g.frac, g.next, g.bound, g.quota, g.window, g.competitors, g.daemons = 0, 0, 0, 0, 0, 0, 0, 1, 1
  g.shadowed = nil
  local key, claims = KEYS[it[TIMELINE]], it[CLAIMS]
  if claims then
    it[CAMPAIGN] = sub(key, prefix)
    for i = 1, #claims do claims[i] = openQuota(it, i, specs[claims[i]]) end
  end
  local tl, changed = loadTimeline(it, held[it[TIMELINE] - 2], now)
  if tl[N] == 0 then
    g.bound = HELD
  elseif it[WANT] > 0 then
    changed = true
    tl[SPACING] = tl[WHOLE]
    if tl[REST] > 0 then tl[SPACING] = tl[SPACING] + 1 end
    tl[FRESH] = max(SECOND, 2 * tl[SPACING])
    take(it, tl)
  end
  if changed then held[it[TIMELINE] - 2] = saveTimeline(tl, key, now) end
  reply(out, it, tl)
end

local function run()
  local out, items, pos, prefix, it = {head(now, steps)}, ARGV[3], 1, num(ARGV[5]) + 1, nil
  for i = 1, #specs do
    local s = specs[i]
    s.cost, s.all, s.left = parse('<I4I4I4', ARGV[6], 12 * i - 11)
  end
  while pos <= #items do
    it, pos = parseItem(items, pos)
    serve(it, prefix, out)
  end
  for _, q in pairs(quotas) do
    levelRivals(q)
    saveQuota(q, now)
  end
  return store(KEYS[2], table.concat(out))
end

return run()
