-- Grants slots to one daemon, for up to 256 campaigns at once, in order and atomically.
--
-- KEYS  1 clock, 2 the node's reply slot, then timelines, gates and quotas, each once
-- ARGV  1 seq, 2 override, 3 node
--       4 JSON, per item: [timeline, gate, rev, n, whole, rest, burst, phase, want, heldUntil, horizon, quantum, late,
--         cost, campaign, [weight, ...] or 0, [quota, ...] or 0]
--       5 JSON, per quota: [key, rev, span, limit, span, limit, ...]
--       timeline, gate and key are indexes into KEYS (gate 0: none), quota the position in the list of quotas.
-- Returns a line with seq, one with now, and one per item:
--   "units at frac n whole rest rev next bound quota window competitors remaining reset_at remaining reset_at ..."
--   bound as in delivery.Binding; quota and window are positions, from 0.

local SECOND, GRANT = 1000000, 65536
local RATE, QUOTA, GATE, HELD = 1, 2, 3, 4

-- Fields of items.
local TIMELINE, ISGATE, IREV, IN, IWHOLE, IREST, IBURST, PHASE, WANT, HELDUNTIL, HORIZON, QUANTUM, LATE, ICOST, CAMPAIGN,
  WEIGHTS, QUOTAS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17
-- Fields of timelines; SPACING and FRESH are worked out when one is used.
local AT, FRAC, N, WHOLE, REST, TREV, BURST, LAST, HIGH, RENEW, NODES, SPACING, FRESH = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13

local seq = num(ARGV[1])
local again = stored(KEYS[2], seq)
if again then return again end
local now = clock(KEYS[1], num(ARGV[2]), true)
local NODE = ARGV[3]

-- The answer to the item at hand: one table for all, since growing one per item costs more than filling it.
local g = {units = 0, at = 0, frac = 0, next = 0, bound = 0, quota = 0, window = 0, competitors = 1}

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
  local k = max(0, min(limit - 1, floor((last - at) / (tl[WHOLE] + tl[REST] / tl[N]))))
  while micros(tl, at, frac, k) > last do k = k - 1 end
  while k + 1 < limit and micros(tl, at, frac, k + 1) <= last do k = k + 1 end
  return k + 1
end

-- Shares among nodes, whose units cost 1 and whose demand is boundless: the largest n such that fewer than room
-- units go before the n-th. That count is convex in n, so Newton's steps come down on it from above and never pass
-- it.
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
  local weights = it[WEIGHTS]
  if weights == 0 then return max(0, min(soft, hard)) end
  local units = 0
  for i = 1, #weights do
    if units >= soft or units + weights[i] > hard then break end
    units = units + weights[i]
  end
  return units
end

local function weightAfter(it, units)
  local weights = it[WEIGHTS]
  if weights == 0 then return 1 end
  for i = 1, #weights do
    if units <= 0 then return weights[i] end
    units = units - weights[i]
  end
  return 1
end

-- Keeps what is still of use of a list of nodes or rivals and finds id in it. Where it is not, there is room for
-- one more afterwards: the one not seen for longest makes it.
local function join(list, id, fresh, grace)
  if #list == 1 and list[1][ID] == id then return list, list[1] end
  local kept, self = {}, nil
  for i = 1, #list do
    local e = list[i]
    if e[ID] == id then
      self = e
      kept[#kept + 1] = e
    elseif now - e[SEEN] <= fresh or now <= e[DUE] + grace then
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

-- The campaign's timeline, brought to the ask's revision if that is newer.
local function loadTimeline(it, key)
  local v = call('HGET', key, 's')
  if not v then
    return {now + it[PHASE], 0, it[IN], it[IWHOLE], it[IREST], it[IREV], it[IBURST], 0, 0, 0, {}}, true
  end
  local tl = decode(v)
  if it[IREV] <= tl[TREV] then return tl, false end
  local changed = tl[N] ~= it[IN] or tl[WHOLE] ~= it[IWHOLE] or tl[REST] ~= it[IREST]
  tl[TREV], tl[BURST], tl[N], tl[WHOLE], tl[REST] = it[IREV], it[IBURST], it[IN], it[IWHOLE], it[IREST]
  if changed and tl[N] > 0 then
    local spacing = tl[WHOLE]
    if tl[REST] > 0 then spacing = spacing + 1 end
    tl[AT], tl[FRAC] = max(now, tl[LAST] + spacing), 0
    if tl[LAST] == 0 then tl[AT] = now + it[PHASE] end
  end
  return tl, true
end

-- Kept for an hour and three spacings at least: a forgotten timeline would forget its last slot, too.
local function saveTimeline(tl, key)
  local renew = now >= tl[RENEW]
  if renew then tl[RENEW] = now + 1800000000 end
  local nodes, list = tl[NODES], ''
  for i = 2, #nodes do
    local e = nodes[i]
    list = list .. fmt(',["%s",%d,%d,%d,%d]', e[1], e[2], e[3], e[4], e[5])
  end
  local e = nodes[1]
  if e then
    list = fmt('[%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,[["%s",%d,%d,%d,%d]%s]]', tl[1], tl[2], tl[3], tl[4], tl[5], tl[6], tl[7],
      tl[8], tl[9], tl[10], e[1], e[2], e[3], e[4], e[5], list)
  else
    list = fmt('[%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,[]]', tl[1], tl[2], tl[3], tl[4], tl[5], tl[6], tl[7], tl[8], tl[9], tl[10])
  end
  call('HSET', key, 's', list)
  if renew then call('PEXPIRE', key, fmt('%d', 5400000 + floor(tl[WHOLE] * 3 / 1000))) end
end

-- Moves the timeline past what a daemon holds, should the store have lost it, and past time that went by unused.
local function catchUp(tl, heldUntil)
  local spacing = tl[SPACING]
  if heldUntil > tl[HIGH] then
    tl[HIGH], tl[LAST] = heldUntil, max(tl[LAST], heldUntil)
    if micros(tl, tl[AT], tl[FRAC], 0) < heldUntil + spacing then
      tl[AT], tl[FRAC] = heldUntil + spacing, 0
    end
  end
  local credit = 0
  if tl[BURST] > 0 then
    credit = advance(tl, 0, 0, min(tl[BURST], GRANT, floor(1125899906842624 / spacing)))
  end
  if tl[AT] < now - credit then tl[AT], tl[FRAC] = now - credit, 0 end
end

-- Whether a node is about to come for units of a quota.
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

local specs, quotas = decode(ARGV[5]), {}

-- What one quota has to say about an item: its windows brought to now and to the newest revision.
local function openQuota(it, i, spec)
  local key = spec[1]
  local q = quotas[key]
  if not q then
    q = loadQuota(KEYS[key])
    quotas[key] = q
  end
  local c, widen, rev = {index = i - 1, held = q, next = 0}, it[HORIZON] + it[LATE], spec[2]
  for j = 3, #spec, 2 do
    local w = findWindow(q, spec[j])
    if not w then
      w = newWindow(spec[j], q.key)
      q.windows[#q.windows + 1] = w
      q.renew = 0
    end
    if rev >= w[REV] then
      if spec[j + 1] > w[LIMIT] then
        -- There is room sooner than the rivals were told: nothing is kept for them until they come again.
        for r = 1, #q.rivals do q.rivals[r][DEMAND] = 0 end
      end
      w[REV], w[LIMIT] = rev, spec[j + 1]
    end
    if widen > w[WIDEN] then w[WIDEN] = widen end
    expire(w, now)
    c[#c + 1] = w
  end
  return c
end

-- How many units of a quota's room fall to the campaign.
local function rivalShare(it, c, slots)
  local q, id, grace = c.held, it[CAMPAIGN], 2 * it[QUANTUM]
  local rivals, self = join(q.rivals, id, SECOND, grace)
  local isNew = not self
  if isNew then
    self = {id, 0, 0, 0, 0, 0, 0}
    rivals[#rivals + 1] = self
  end
  q.rivals, c.self = rivals, self
  self[COST] = it[ICOST]
  if #rivals == 1 then
    return min(slots, c.room)
  end
  local active = self[DEMAND] > 0 and now <= self[DUE] + grace
  local others, low, high, tie = {}, 0, 0, 1
  for i = 1, #rivals do
    local r = rivals[i]
    if r == self then
      tie = 0
    else
      high = max(high, r[SERVICE])
      if r[DEMAND] > 0 and now <= r[DUE] + grace then
        if #others == 0 or r[SERVICE] < low then low = r[SERVICE] end
        r[TIE] = tie
        others[#others + 1] = r
      end
    end
  end
  if #others == 0 then low = high end
  if not isNew and (active or #others == 0) then low = low - min(c.tight[LIMIT], GRANT) * self[COST] end
  self[SERVICE] = max(self[SERVICE], low)
  return shareRivals(self, c.room, slots, others)
end

local function quotaShare(it, tl, self, slots)
  local soft, hard = slots, GRANT
  for _, c in ipairs(it.quotas) do
    local room
    for j = 1, #c do
      local left = remaining(c[j])
      if not room or left < room then room, c.tight, c.window = left, c[j], j - 1 end
    end
    c.room = min(room, GRANT)
    c.share = rivalShare(it, c, slots)
    soft, hard = min(soft, c.share), min(hard, c.room)
  end
  if soft >= slots and hard >= slots then return slots end
  -- The campaign's daemons share what falls to the campaign.
  local others, tie, grace = {}, 1, 2 * it[QUANTUM]
  for _, e in ipairs(tl[NODES]) do
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

local function quotaNext(it, units)
  local bound, next, never, need = nil, 0, false, weightAfter(it, units)
  for _, c in ipairs(it.quotas) do
    if not bound or min(c.share, c.room) < min(bound.share, bound.room) then bound = c end
    for j = 1, #c do
      if need > c[j][LIMIT] then
        never = true
      elseif remaining(c[j]) < need then
        c.next = max(c.next, freeAt(c[j], need))
      end
    end
    next = max(next, c.next)
  end
  g.quota, g.window = bound.index, bound.window
  if never then return 0 end
  if next == 0 then return now + it[QUANTUM] end
  return next
end

-- Notes what the campaign was served by each quota, and what it still has a use for.
local function settleQuotas(it, tl, units, slots, want)
  for _, c in ipairs(it.quotas) do
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
    local v = call('GET', key)
    g = false
    if v then
      local at, probe = match(v, '^(%d+) (%d)$')
      g = {at = num(at), probe = probe == '1'}
    end
    gates[key] = g
  end
  return g
end

-- One item --------------------------------------------------------------------------------------------------------

local function take(it, tl)
  catchUp(tl, it[HELDUNTIL])
  local at, frac, want = tl[AT], tl[FRAC], jobs(it, it[WANT], GRANT)
  local limit, gate, horizon = want, false, now + it[HORIZON]
  local gateKey = KEYS[it[ISGATE]]
  if gateKey then gate = loadGate(gateKey) end
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

  local open = countUntil(tl, at, frac, horizon, GRANT)
  local nodes, self = join(tl[NODES], NODE, tl[FRESH], 2 * it[QUANTUM])
  if not self then
    self = {NODE, 0, 0, 0, -1}
    nodes[#nodes + 1] = self
  end
  tl[NODES] = nodes
  local slots = min(jobs(it, slotShare(it, tl, self, at, frac, open), GRANT), limit)
  local units = slots
  if slots > 0 and it.quotas then units = quotaShare(it, tl, self, slots) end
  if units > 0 then
    g.units, g.at, g.frac = units, at, frac
    tl[LAST] = micros(tl, at, frac, units - 1)
    tl[HIGH] = max(tl[HIGH], tl[LAST])
    tl[AT], tl[FRAC] = advance(tl, at, frac, units)
    if it.quotas then
      for _, c in ipairs(it.quotas) do
        for j = 1, #c do debit(c[j], now, units) end
      end
    end
    if gate and gate.probe then
      gate.at = now + SECOND
      call('SET', gateKey, fmt('%d 1', gate.at), 'PX', 86400000)
    end
  end
  self[SEEN], self[CUT], self[DUE] = now, 0, 0
  self[SERVED] = self[SERVED] + units
  if units < slots then
    g.bound = QUOTA
    g.next = quotaNext(it, units)
    self[DUE] = g.next
  elseif gate and gate.probe and units > 0 and units < want then
    g.bound, g.next = GATE, gate.at
  elseif units < want then
    g.bound, g.next = RATE, rateNext(it, tl, at, frac, units, open)
    self[CUT] = now
  end
  if it.quotas then settleQuotas(it, tl, units, slots, want) end
end

local out, items = {fmt('%d\n%d', seq, now)}, decode(ARGV[4])
for i = 1, #items do
  local it = items[i]
  g.units, g.at, g.frac, g.next, g.bound, g.quota, g.window, g.competitors = 0, 0, 0, 0, 0, 0, 0, 1
  if it[QUOTAS] ~= 0 then
    local list = {}
    for j, q in ipairs(it[QUOTAS]) do list[j] = openQuota(it, j, specs[q]) end
    it.quotas = list
  end
  local key = KEYS[it[TIMELINE]]
  local tl, changed = loadTimeline(it, key)
  if tl[N] == 0 then
    g.bound = HELD
  elseif it[WANT] > 0 then
    changed = true
    tl[SPACING] = tl[WHOLE]
    if tl[REST] > 0 then tl[SPACING] = tl[SPACING] + 1 end
    tl[FRESH] = max(SECOND, 2 * tl[SPACING])
    take(it, tl)
  end
  if changed then saveTimeline(tl, key) end
  out[#out + 1] = fmt('\n%d %d %d %d %d %d %d %d %d %d %d %d', g.units, g.at, g.frac, tl[N], tl[WHOLE], tl[REST], tl[TREV],
    g.next, g.bound, g.quota, g.window, g.competitors)
  if it.quotas then
    for _, c in ipairs(it.quotas) do
      for j = 1, #c do out[#out + 1] = fmt(' %d %d', remaining(c[j]), resetAt(c[j], now)) end
    end
  end
end
for _, q in pairs(quotas) do saveQuota(q, now) end
return store(KEYS[2], table.concat(out))
