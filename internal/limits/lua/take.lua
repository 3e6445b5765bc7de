-- Grants slots to one daemon, for up to 256 campaigns at once, in order and atomically.
--
-- KEYS  1 clock, 2 the node's reply slot, then timelines, gates and quotas, each once
-- ARGV  1 header, 2 node
--       3 per item: timeline, gate, rev, n, whole, rest, burst, phase, want, last_granted, horizon, quantum, late, cost,
--         weights, more, quotas, then the weights and the quotas
--         timeline and gate (0: none) are indexes into KEYS, quotas are positions, from 1, in the list of quotas
--       4 quotas, as parseSpecs reads them
-- Returns head, then per item
--   units at frac n whole rest rev next bound quota window newest competitors daemons waiting shadowed, then each shadowed quota and
--   units, and per window of each quota remaining, reset_at and when the next unit is free, 0 if one is free now, or never. After the
--   windows of each quota, for a daemon that looks: what falls to it, when that may grow, and when the quota can grant a unit.
--   Without units, at is the last slot that was granted before. bound as in delivery.Binding. A quota is a position, from 0, among those
--   of the item, a window one among those of its quota. newest is 0, or the newest revision of the quota, where the caller's is an old one.

local BOUND = {RATE = 1, QUOTA = 2, GATE = 3, STOPPED = 4}

local NODE = ARGV[2]
local now, values -- and the values of the keys, by their index in KEYS less 2; those of gates are parsed once, when the first item asks
local answer -- to the current item

-- When more slots can be granted: when the next one enters the horizon or, if slots are left for others, is near enough to go to any
-- daemon.
local function rateNext(it, tl, at, frac, units, available)
  local next = micros(tl, at, frac, max(units, available)) - it[HORIZON]
  if units < available then next = min(next, micros(tl, at, frac, units) - floor(it[HORIZON] / 2)) end
  return max(next, now + 1)
end

-- Quotas ----------------------------------------------------------------------------------------------------------

local specs, quotas = parseSpecs(ARGV[4]), {}

-- What an item demands of one quota: see model/demand.go.
local function openQuota(it, i, spec)
  local key = spec.key
  local q = quotas[key]
  if not q then
    q = loadQuota(KEYS[key], values[key - 2])
    quotas[key] = q
  end
  local opened = windowsOf(q, spec, now, it[HORIZON] + it[LATE])
  return {
    index = i - 1, spec = spec, joint = spec.cost > 0, quota = q, opened = opened, windows = opened.windows, next = 0,
    even = spec.even, binds = spec.covers and not spec.shadow,
    self = false, wasOwed = false, tight = false, window = 0, hard = 0, soft = 0, share = 0, moreAt = 0, opens = 0, keptUntil = 0,
  }
end

-- Counts granted units in all windows of a quota, by the same amount. A quota in shadow mode counts what it would have
-- granted, and reports the rest.
local function debitQuota(it, c, units)
  if not c.spec.covers then return end
  if c.spec.shadow then
    measure(it, c, now)
    local would = jobs(it, min(units, c.soft), c.hard)
    if would < units then
      answer.shadowed[#answer.shadowed + 1] = pack('<BI4', c.index, units - would)
      units = would
    end
  end
  local windows, spec, even = c.windows, c.spec, c.even
  changedWindows(c.opened)
  c.quota.taken = c.quota.taken + units
  for j = 1, #windows do
    if even then spend(windows[j], now, units, c.wasOwed) end
    if units > 0 then debit(windows[j], now, units, spec[j].period) end
  end
end

-- How many of a quota's units fall to the daemon or, where it has no claim, to the campaign. Sets self, wasOwed and keptUntil, and what
-- measure does.
local function rivalShare(it, c, want)
  local grace, cost, rivals, self, isNew = 2 * it[QUANTUM], it[ICOST], c.quota.rivals, {0, '', 0, 0, 0, 0, 0}, true
  if c.joint then
    self, isNew = joinQuota(c.quota, NODE, now, grace)
    cost, rivals = c.spec.cost, c.quota.rivals
  end
  local due = isDue(self, now, grace)
  c.self, c.wasOwed = self, due and self[DEMAND] > 0
  self[COST] = cost
  measure(it, c, now)
  if #rivals == 0 or #rivals == 1 and rivals[1] == self then return min(want, c.soft) end
  if due and c.soft == 0 then return 0 end -- there is nothing to share
  local dearest = cost
  local others, low = competitors(rivals, self, function(r)
    local till = r[DUE] > 0 and claimEnd(r, grace) or 0
    if till < now then return false end
    if r[COST] > dearest then dearest = r[COST] end
    if r[DEMAND] == 0 then return false end
    if c.keptUntil == 0 or till < c.keptUntil then c.keptUntil = till end
    return true
  end)
  -- Units that were not asked for are not owed later, beyond what the window held.
  if not isNew and (due or #others == 0) then low = low - min(c.tight[LIMIT], GRANT) * dearest end
  self[SERVICE] = max(self[SERVICE], low)
  local n = share(self, c.soft, want, others)
  if n == min(want, c.soft) then c.keptUntil = 0 end
  return n
end

local function quotaShare(it, demands, slots)
  local soft, hard = slots, GRANT
  for i = 1, #demands do
    local c = demands[i]
    if c.binds then
      c.share = rivalShare(it, c, slots)
      soft, hard = min(soft, c.share), min(hard, c.hard)
    end
  end
  if soft >= slots and hard >= slots then return slots end
  return jobs(it, min(soft, slots), min(hard, slots))
end

local function quotaNext(it, demands, units)
  local bound, next, never, weight = nil, 0, false, weightAfter(it, units)
  for i = 1, #demands do
    local c = demands[i]
    if c.binds then
      if not bound or min(c.share, c.hard) < min(bound.share, bound.hard) then bound = c end
      for j = 1, #c.windows do
        local w = c.windows[j]
        if weight > w[LIMIT] then
          never = true
        else
          c.next = max(c.next, windowNext(it, c, w, now, weight))
        end
      end
      if c.next == 0 and c.keptUntil > 0 then c.next = max(now + it[QUANTUM], min(c.keptUntil + 1, growsAt(it, c, now))) end
      next = max(next, c.next)
    end
  end
  answer.quota, answer.window = bound.index, bound.window
  if never then return 0 end
  if next <= now then return now + it[QUANTUM] end -- there is room, but not for a whole job
  return next
end

-- Whether another quota has units and keeps all of them for others.
local function keptElsewhere(demands, c)
  for i = 1, #demands do
    local other = demands[i]
    if other ~= c and other.share == 0 and other.keptUntil > 0 then return true end
  end
  return false
end

-- Whether what the item's campaign needs has come again by the time it asks next: nothing is kept for it then.
local function comesAgain(c, now, next)
  local w = c.tight
  if c.even and floor((next - now - 1) / max(1, floor(w[SPAN] / max(1, w[LIMIT])))) >= c.spec.all - c.spec.left then return true end
  return w[KIND] == FIXED and w[INDEX] > 0 and next >= w[INDEX]
end

-- Whether units of a quota are kept for the daemon until it asks again, at next; short: the quotas granted less than there were slots.
-- The reasons are in model/claim.go.
local function keeps(demands, c, now, next, units, short)
  local patience = SECOND
  if short then patience = max(SECOND, c.tight[SPAN]) end
  if next > max(now, c.next) + patience then return false end
  return (units > 0 or not keptElsewhere(demands, c)) and not comesAgain(c, now, next)
end

-- Records what each quota granted the daemon, and how much more it can use before it asks again.
local function settleQuotas(it, demands, units, slots, want)
  for i = 1, #demands do
    local c = demands[i]
    local r = c.joint and c.self
    if r then
      r[SEEN], r[DEMAND], r[DUE] = now, 0, 0
      r[SERVICE] = r[SERVICE] + units * r[COST]
      if units < want and answer.next > 0 and keeps(demands, c, now, answer.next, units, units < slots) then
        r[DUE], r[DEMAND] = max(c.spec.due, answer.next), c.spec.all
      elseif c.spec.left > 0 then
        r[DUE], r[DEMAND] = max(c.spec.due, nextOf(it, c, now)), c.spec.left
      elseif units < want then
        r[DUE] = answer.next -- it keeps its place, and claims nothing
      end
    end
  end
end

-- How much of each quota falls to the daemon that asks for nothing yet, and when that may grow. Its claim stands until then.
local function look(it, demands)
  for i = 1, #demands do
    local c = demands[i]
    if c.binds and c.joint then
      c.share = rivalShare(it, c, c.spec.all)
      local at, r = nextOf(it, c, now), c.self
      r[SEEN], r[DUE], r[DEMAND] = now, max(c.spec.due, at), c.spec.left
      if c.share < c.spec.all then
        local more = growsAt(it, c, now)
        if c.keptUntil > 0 then more = min(more, c.keptUntil + 1) end
        if more < math.huge then at = max(at, more) end
      end
      c.moreAt, c.opens = at, opensAt(it, c, now)
      if c.share == 0 then r[DUE] = max(r[DUE], at) end
    end
  end
  for i = 1, #demands do
    local c = demands[i]
    if c.binds and c.joint and keptElsewhere(demands, c) then c.self[DEMAND] = 0 end
  end
end

-- Gates -----------------------------------------------------------------------------------------------------------

-- The item's gate while it is closed or half-open, false otherwise. That a sink does not work is only shown: each daemon finds it out.
local function gateFor(it)
  local key = it[GATE]
  local gate = values[key - 2]
  if type(gate) == 'string' then
    local at, mode, since = gateOf(gate, now)
    gate = at and {key = KEYS[key], at = at, mode = mode, since = since} or false
    values[key - 2] = gate
  end
  return gate and gate.mode ~= MODE.FAILING and gate
end

-- Closes a half-open gate again behind the job that is to find out whether the destination works.
local function closeBehindProbe(gate)
  gate.at = now + SECOND
  if gate.mode == MODE.ASKED then gate.mode = MODE.TRIED end
  call('SET', gate.key, gateText(gate.at, gate.mode, gate.since), 'PX', 86400000)
end

-- One item --------------------------------------------------------------------------------------------------------

-- Whether the daemon has an old revision of a quota. It waits until its catalog is up to date.
local function outdated(it, demands)
  for i = 1, #demands do
    local c = demands[i]
    if c.spec.rev < c.quota.rev then
      answer.bound, answer.quota, answer.newest, answer.next = BOUND.QUOTA, c.index, c.quota.rev, now + it[QUANTUM]
      return true
    end
  end
  return false
end

-- Where the slots for an item begin (at and frac), when the last may be, and the hole of the timeline they are in, false for none.
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

-- Takes slots out of the timeline, from a hole or at its end.
local function giveSlots(tl, at, frac, units, hole)
  answer.units, answer.at, answer.frac = units, at, frac
  local last = micros(tl, at, frac, units - 1)
  if hole then
    hole[HOLEBEFORE] = last
  else
    tl[LASTSLOT], tl[HIGHEST] = last, max(tl[HIGHEST], last)
    tl[AT], tl[FRAC] = advance(tl, at, frac, units)
  end
end

local function take(it, tl)
  local demands, gate = it[DEMANDS], false
  if demands and outdated(it, demands) then return end
  catchUp(tl, it, now)
  if it[GATE] > 0 then gate = gateFor(it) end
  if gate and gate.at > now then
    answer.bound, answer.next = BOUND.GATE, gate.at
    if gate.mode == MODE.TRIED then answer.next = min(gate.at, now + SECOND / 4) end -- the job that was let through may open it at any time
    return
  end
  local want = jobs(it, it[WANT], GRANT)

  -- What the timeline has for the daemon, and how much of that the quotas allow.
  local at, frac, last, hole = slotsFrom(it, tl, gate)
  local available, slots, self, isNew = countUntil(tl, at, frac, last, GRANT), nil, nil, nil
  tl[RIVALS], self, isNew = join(tl[RIVALS], NODE, now, max(tl[FRESH], CLAIM), 2 * it[QUANTUM])
  self[COST], answer.daemons = 1, #tl[RIVALS]
  slots, answer.competitors, answer.waiting = slotShare(it, tl, self, isNew, now, at, frac, available)
  if gate then slots = min(slots, 1) end
  slots = jobs(it, slots, GRANT)
  local units = slots
  if slots > 0 and demands then units = quotaShare(it, demands, slots) end

  if units > 0 then
    giveSlots(tl, at, frac, units, hole)
    if demands then
      for i = 1, #demands do debitQuota(it, demands[i], units) end
    end
    if gate then closeBehindProbe(gate) end
  end

  -- What ended the grant, and when there is more.
  self[SEEN], self[DEMAND], self[DUE], self[SERVICE] = now, 0, 0, self[SERVICE] + units
  if units < slots then
    answer.bound, answer.next = BOUND.QUOTA, quotaNext(it, demands, units)
    self[DUE] = answer.next
  elseif gate and units > 0 and units < want then
    answer.bound, answer.next = BOUND.GATE, gate.at
  elseif units < want then
    answer.bound, answer.next = BOUND.RATE, rateNext(it, tl, at, frac, units, available)
    self[DEMAND] = GRANT
  elseif it[MORE] > 0 then
    self[DUE] = now + it[QUANTUM]
  end
  if demands then settleQuotas(it, demands, units, slots, want) end
end

local function reply(out, it, tl)
  out[#out + 1] = pack('<I4I7I7I7I7I7I7I7BBBI7I2I2I2B', answer.units, answer.at, answer.frac, tl[N], tl[WHOLE], tl[REST], tl[TREV], answer.next,
    answer.bound, answer.quota, answer.window, answer.newest, answer.competitors, answer.daemons, answer.waiting, #answer.shadowed)
  out[#out + 1] = table.concat(answer.shadowed)
  local demands = it[DEMANDS]
  for i = 1, it[QUOTAS] do
    local c = demands[i]
    out[#out + 1] = stateOf(c.opened, now)
    if it[WANT] == 0 and c.joint then
      out[#out + 1] = pack('<I4I7I7', c.share, c.moreAt, c.opens)
    end
  end
end

-- Serves one item: opens its quotas, takes from its timeline and them, and appends the answer to out.
local function serve(it, out)
  answer = {units = 0, at = 0, frac = 0, next = 0, bound = 0, quota = 0, window = 0, newest = 0, competitors = 1, daemons = 1, waiting = 1, shadowed = {}}
  local key, demands = KEYS[it[TIMELINE]], it[DEMANDS]
  if demands then
    for i = 1, #demands do demands[i] = openQuota(it, i, specs[demands[i]]) end
  end
  local tl, changed = loadTimeline(it, values[it[TIMELINE] - 2], now)
  answer.at = tl[LASTSLOT]
  if tl[N] == 0 then
    answer.bound = BOUND.STOPPED
  elseif it[WANT] > 0 then
    changed = true
    tl[SPACING] = tl[WHOLE]
    if tl[REST] > 0 then tl[SPACING] = tl[SPACING] + 1 end
    tl[FRESH] = max(SECOND, 2 * tl[SPACING])
    take(it, tl)
  elseif demands then
    look(it, demands)
  end
  if changed then values[it[TIMELINE] - 2] = saveTimeline(tl, key, now) end
  reply(out, it, tl)
end

return once(function(at)
  now, values = at, {}
  if #KEYS > 2 then values = call('MGET', unpack(KEYS, 3)) end
  local out, items, pos, it = {head(now)}, ARGV[3], 1, nil
  while pos <= #items do
    it, pos = parseItem(items, pos)
    serve(it, out)
  end
  for _, q in pairs(quotas) do
    levelRivals(q)
    saveQuota(q, now)
  end
  return table.concat(out)
end)
