-- Grants slots to one daemon, for up to 256 campaigns at once, in order and atomically.
--
-- KEYS  1 clock, 2 the node's reply slot, then timelines, gates and quotas, each once
-- ARGV  1 header, 2 node
--       3 per item: timeline, gate, rev, n, whole, rest, burst, phase, want, last_granted, horizon, quantum, late, cost,
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

local PROBED = 250000 -- when to ask again while a job finds out whether a gate may open
local BOUND = {RATE = 1, QUOTA = 2, GATE = 3, HELD = 4}

local again = stored(KEYS[2])
if again then return again end
local now, refused = clock(KEYS[1], true)
if not now then return refused end
local NODE = ARGV[2]
-- The values of the keys, by their position less 2; those of gates are read once, when the first item asks.
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
  return {
    index = i - 1, spec = spec, joint = spec.cost > 0, held = q, opened = opened, windows = opened.windows, next = 0,
    even = spec.even, binds = spec.covers and not spec.shadow,
    self = false, claims = false, tight = false, window = 0, room = 0, pace = 0, share = 0, interval = 0, owed = 0, kept = 0,
  }
end

-- Counts granted units in all windows of a quota, by the same amount. A quota in shadow mode counts what it would have
-- granted, and reports the rest.
local function debitQuota(it, c, units)
  if not c.spec.covers then return end
  if c.spec.shadow then
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
    if even then spend(windows[j], now, units, c.claims) end
    if units > 0 then debit(windows[j], now, units, spec[j].period) end
  end
end

-- How many units of a quota's room fall to the campaign, or to all those of the daemon that it asks for.
local function rivalShare(it, c, slots)
  local grace, name, cost = 2 * it[QUANTUM], it[CAMPAIGN], it[ICOST]
  if c.joint then name, cost = ' ' .. NODE, c.spec.cost end
  local self, isNew = joinRivals(c.held, name, now, grace)
  local due, rivals = isDue(self, now, grace), c.held.rivals
  c.self, c.claims = self, due and self[DEMAND] > 0
  self[COST] = cost
  measure(it, c, now)
  if #rivals == 1 then return min(slots, c.pace) end
  if due and c.pace == 0 then return 0 end -- there is nothing to share
  local others, low, high, dearest, tie, interval, owed, ends = {}, 0, 0, cost, 1, c.interval, 0, resetOf(c.tight)
  for i = 1, #rivals do
    local r = rivals[i]
    if r == self then
      tie = 0
    else
      high = max(high, r[SERVICE])
      if isDue(r, now, grace) then
        local price, demand, at = r[COST], r[DEMAND], r[DUE]
        if price > dearest then dearest = price end
        -- Those who ask when what they need has come again lose nothing.
        if demand > 0 and at < ends and (interval == 0 or at <= now + demand * interval) then
          local till = claimEnd(r, grace)
          if owed == 0 or r[SERVICE] < low then low = r[SERVICE] end
          if owed == 0 or till < c.kept then c.kept = till end
          owed = owed + demand
          r[TIE] = tie
          others[#others + 1] = r
        end
      end
    end
  end
  c.owed = owed
  if owed == 0 then low = high end
  if not isNew and (due or owed == 0) then low = low - min(c.tight[LIMIT], GRANT) * dearest end
  self[SERVICE] = max(self[SERVICE], low)
  local n = shareRivals(self, c.pace, slots, others)
  if n == min(slots, c.pace) then c.kept = 0 end
  return n
end

local function quotaShare(it, tl, claims, self, slots)
  local soft, hard = slots, GRANT
  for i = 1, #claims do
    local c = claims[i]
    if c.binds then
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

local function quotaNext(it, claims, units)
  local bound, next, never, weight = nil, 0, false, weightAfter(it, units)
  for i = 1, #claims do
    local c = claims[i]
    if c.binds then
      if not bound or min(c.share, c.room) < min(bound.share, bound.room) then bound = c end
      for j = 1, #c.windows do
        local w = c.windows[j]
        if weight > w[LIMIT] then
          never = true
        else
          c.next = max(c.next, windowNext(it, c, w, now, weight))
        end
      end
      if c.next == 0 and c.kept > 0 then c.next = max(now + it[QUANTUM], min(c.kept + 1, growsAt(it, c, now))) end
      next = max(next, c.next)
    end
  end
  g.quota, g.window = bound.index, bound.window
  if never then return 0 end
  if next <= now then return now + it[QUANTUM] end
  return next
end

-- Records what each quota granted the campaign, and how much more the campaign can use before it asks again.
local function settleQuotas(it, tl, claims, units, slots, want)
  for i = 1, #claims do
    local c = claims[i]
    local r = c.self
    if r then
      local due = r[DUE]
      r[SEEN], r[DEMAND], r[DUE] = now, 0, 0
      r[SERVICE] = r[SERVICE] + units * r[COST]
      if units < want and g.next > 0 and keeps(claims, c, now, g.next, units, units < slots) then
        claim(it, tl[SPACING], claims, c, now, g.next, units, slots, want)
      elseif c.joint and c.spec.left > 0 then
        r[DUE], r[DEMAND] = max(due, nextOf(it, c, now)), c.spec.left
      elseif units < want then
        r[DUE] = g.next -- what it is owed here is remembered until then
      end
    end
  end
end

-- Gates -----------------------------------------------------------------------------------------------------------

-- The item's gate while it is closed or half-open, false otherwise. That a sink does not work is only shown: each daemon finds it out.
local function gateFor(it)
  local key = it[ISGATE]
  local gate = held[key - 2]
  if type(gate) == 'string' then
    local at, mode, since = gateOf(gate, now)
    gate = at and {key = KEYS[key], at = at, mode = mode, since = since} or false
    held[key - 2] = gate
  end
  return gate and gate.at > 0 and gate.mode ~= '1' and gate
end

-- Closes a half-open gate again behind the job that is to find out whether the destination works.
local function probing(gate)
  gate.at = now + SECOND
  if gate.mode == '0' then gate.mode = '4' end
  call('SET', gate.key, string.format('%d %s %d', gate.at, gate.mode, gate.since), 'PX', 86400000)
end

-- One item --------------------------------------------------------------------------------------------------------

-- Whether the daemon has an old revision of a quota. It waits until its catalog is up to date.
local function outdated(it, claims)
  for i = 1, #claims do
    local c = claims[i]
    if c.spec.rev < c.held.rev then
      g.bound, g.quota, g.window, g.at, g.next = BOUND.QUOTA, c.index, 255, c.held.rev, now + it[QUANTUM]
      return true
    end
  end
  return false
end

-- Where the slots for an item begin, when the last may be, and the hole of the timeline they are in, false for none.
local function slotsFrom(it, tl, gate)
  local at, frac, horizon = tl[AT], tl[FRAC], now + it[HORIZON]
  if not gate and not it[WEIGHTLIST] then -- a heavy job might not fit into a hole
    local holes = tl[HOLES]
    for i = 1, #holes do
      local h = holes[i]
      local from = max(now, h[HOLEBEFORE] + tl[SPACING])
      if from <= h[HOLELAST] then
        if from <= horizon then return from, 0, min(horizon, h[HOLELAST]), h end
        break
      end
    end
  end
  return at, frac, horizon, false
end

-- The daemon among those that take from the timeline.
local function joinTimeline(it, tl)
  local nodes, self = joinNodes(tl[NODES], NODE, now, tl[FRESH], 2 * it[QUANTUM])
  if not self then
    self = {0, NODE, 0, 0, 0, -1}
    nodes[#nodes + 1] = self
  end
  tl[NODES], g.daemons = nodes, #nodes
  return self
end

-- Gives slots away, of a hole or at the end of the timeline.
local function giveSlots(tl, at, frac, units, hole)
  g.units, g.at, g.frac = units, at, frac
  local last = micros(tl, at, frac, units - 1)
  if hole then
    hole[HOLEBEFORE] = last
  else
    tl[LASTSLOT], tl[HIGHEST] = last, max(tl[HIGHEST], last)
    tl[AT], tl[FRAC] = advance(tl, at, frac, units)
  end
end

local function take(it, tl)
  local claims, gate = it[CLAIMS], false
  if claims and outdated(it, claims) then return end
  catchUp(tl, it, now)
  if it[ISGATE] > 0 then gate = gateFor(it) end
  if gate and gate.at > now then
    g.bound, g.next = BOUND.GATE, gate.at
    if gate.mode == '4' then g.next = min(gate.at, now + PROBED) end -- the job that was let through may open it at any time
    return
  end
  local want = jobs(it, it[WANT], GRANT)

  -- What the timeline has for the daemon, and how much of that the quotas allow.
  local at, frac, last, hole = slotsFrom(it, tl, gate)
  local open, self = countUntil(tl, at, frac, last, GRANT), joinTimeline(it, tl)
  local slots
  slots, g.competitors = slotShare(it, tl, self, now, at, frac, open)
  if gate then slots = min(slots, 1) end
  slots = jobs(it, slots, GRANT)
  local units = slots
  if slots > 0 and claims then units = quotaShare(it, tl, claims, self, slots) end

  if units > 0 then
    giveSlots(tl, at, frac, units, hole)
    if claims then
      for i = 1, #claims do debitQuota(it, claims[i], units) end
    end
    if gate then probing(gate) end
  end

  -- What ended the grant, and when there is more.
  self[SEEN], self[CUT], self[DUE], self[SERVED] = now, 0, 0, self[SERVED] + units
  if units < slots then
    g.bound, g.next = BOUND.QUOTA, quotaNext(it, claims, units)
    self[DUE] = g.next
  elseif gate and units > 0 and units < want then
    g.bound, g.next = BOUND.GATE, gate.at
  elseif units < want then
    g.bound, g.next = BOUND.RATE, rateNext(it, tl, at, frac, units, open)
    self[CUT] = now
  end
  if claims then settleQuotas(it, tl, claims, units, slots, want) end
end

local function reply(out, it, tl)
  local shadowed = g.shadowed
  out[#out + 1] = pack('<I4I7I7I7I7I7I7I7BBBI2I2B', g.units, g.at, g.frac, tl[N], tl[WHOLE], tl[REST], tl[TREV], g.next, g.bound, g.quota,
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
    g.bound = BOUND.HELD
  elseif it[WANT] > 0 then
    changed = true
    tl[SPACING] = tl[WHOLE]
    if tl[REST] > 0 then tl[SPACING] = tl[SPACING] + 1 end
    tl[FRESH] = max(SECOND, 2 * tl[SPACING])
    take(it, tl)
  elseif claims then
    stay(it, claims, now, ' ' .. NODE)
  end
  if changed then held[it[TIMELINE] - 2] = saveTimeline(tl, key, now) end
  reply(out, it, tl)
end

local function run()
  local out, items, pos, prefix, it = {head(now)}, ARGV[3], 1, num(ARGV[5]) + 1, nil
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
