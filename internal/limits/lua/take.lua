-- Grants slots to one daemon, for up to 256 campaigns at once, in order and atomically.
--
-- KEYS  1 clock, 2 the node's reply slot, then timelines, gates and quotas, each once
-- ARGV  1 "seq override", 2 node, 3 how many items, then per item
--         "timeline gate rev n whole rest burst phase want heldUntil horizon quantum late cost campaign
--          weights|quota,quota,..."  (one line; weights by commas)
--       and after the items per quota "key rev span:limit span:limit ..."
--       timeline, gate and key are indexes into KEYS (gate 0: none), quota the position in the list of quotas.
-- Returns one line per item after a line with now:
--   "units at frac n whole rest rev next bound quota window competitors remaining reset_at remaining reset_at ..."
--   bound as in delivery.Binding; quota and window are positions, from 0.

local SECOND, GRANT = 1000000, 65536
local RATE, QUOTA, GATE, HELD = 1, 2, 3, 4

local seq, override = match(ARGV[1], '^(%d+) (%d+)$')
seq = num(seq)
local again = stored(KEYS[2], seq)
if again then return again end
local now = clock(KEYS[1], num(override), true)
local NODE, ITEMS = ARGV[2], num(ARGV[3])

-- The slot k places after (at, frac), and the first whole microsecond not before it.
local function advance(tl, at, frac, k)
  local f = frac + k * tl.rest
  return at + k * tl.whole + floor(f / tl.n), f % tl.n
end

local function micros(tl, at, frac, k)
  local a, f = advance(tl, at, frac, k)
  if f > 0 then return a + 1 end
  return a
end

-- How many slots from (at, frac) on lie not after last, at most limit.
local function countUntil(tl, at, frac, last, limit)
  if limit <= 0 or micros(tl, at, frac, 0) > last then return 0 end
  local k = max(0, min(limit - 1, floor((last - at) / (tl.whole + tl.rest / tl.n))))
  while micros(tl, at, frac, k) > last do k = k - 1 end
  while k + 1 < limit and micros(tl, at, frac, k + 1) <= last do k = k + 1 end
  return k + 1
end

-- Shares among flows of cost 1 and boundless demand: the largest n such that fewer than room units go before the
-- n-th. That count is convex in n, so Newton's steps come down on it from above and never pass it.
local function shareNodes(self, room, want, others)
  local n = min(want, room)
  while n > 0 do
    local ahead, slope, x = n - 1, 1, self + n - 1
    for _, o in ipairs(others) do
      local b = x - o.served + o.tie
      if b > 0 then ahead, slope = ahead + b, slope + 1 end
    end
    if ahead < room then return n end
    n = n - floor((ahead - room + slope) / slope)
  end
  return 0
end

-- The same for flows with costs and demands, by bisection.
local function shareRivals(self, room, want, others)
  if #others == 0 then return max(0, min(want, room)) end
  local lo, hi = 0, max(0, min(want, room))
  while lo < hi do
    local i = floor((lo + hi) / 2)
    local ahead, x = i, self.service + i * self.cost
    for _, o in ipairs(others) do
      local d = x - o.service
      if d >= 0 then
        local n = floor(d / o.cost)
        if d % o.cost ~= 0 or o.tie == 1 then n = n + 1 end
        ahead = ahead + min(n, o.demand)
      end
    end
    if ahead >= room then hi = i else lo = i + 1 end
  end
  return lo
end

-- The units of the jobs at the head that begin within the first soft units and end within the first hard ones.
local function jobs(it, soft, hard)
  soft = min(soft, it.want)
  if not it.weights then return max(0, min(soft, hard)) end
  local units = 0
  for _, w in ipairs(it.weights) do
    if units >= soft or units + w > hard then break end
    units = units + w
  end
  return units
end

local function weightAfter(it, units)
  for _, w in ipairs(it.weights or {}) do
    if units <= 0 then return w end
    units = units - w
  end
  return 1
end

-- Keeps what is still of use of a list of competitors, finds self in it, or replaces the one not seen for longest.
local function join(list, id, gone, new)
  local kept, self = {}, nil
  for _, e in ipairs(list) do
    if e.id == id then
      self = e
      kept[#kept + 1] = e
    elseif not gone(e) then
      kept[#kept + 1] = e
    end
  end
  if self then return kept, self, false end
  if #kept >= 64 then
    local oldest = 1
    for i, e in ipairs(kept) do
      if e.seen < kept[oldest].seen then oldest = i end
    end
    table.remove(kept, oldest)
  end
  kept[#kept + 1] = new
  return kept, new, true
end

-- Timelines -------------------------------------------------------------------------------------------------------

local function loadTimeline(it)
  local v = call('GET', it.key)
  local tl
  if not v then
    return {at = now + it.phase, frac = 0, n = it.n, whole = it.whole, rest = it.rest, rev = it.rev, burst = it.burst,
            last = 0, high = 0, nodes = {}}
  end
  local at, frac, n, whole, rest, rev, burst, last, high, after =
    match(v, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)()')
  tl = {at = num(at), frac = num(frac), n = num(n), whole = num(whole), rest = num(rest), rev = num(rev),
        burst = num(burst), last = num(last), high = num(high), nodes = {}}
  for id, seen, cut, due, served in gmatch(sub(v, after), '\n(%S+) (%d+) (%d+) (%d+) (%d+)') do
    tl.nodes[#tl.nodes + 1] = {id = id, seen = num(seen), cut = num(cut), due = num(due), served = num(served)}
  end
  if it.rev > tl.rev then
    local changed = tl.n ~= it.n or tl.whole ~= it.whole or tl.rest ~= it.rest
    tl.rev, tl.burst, tl.n, tl.whole, tl.rest = it.rev, it.burst, it.n, it.whole, it.rest
    if changed and tl.n > 0 then
      local spacing = tl.whole
      if tl.rest > 0 then spacing = spacing + 1 end
      tl.at, tl.frac = max(now, tl.last + spacing), 0
      if tl.last == 0 then tl.at = now + it.phase end
    end
  end
  return tl
end

-- Kept for an hour, or three spacings: a forgotten timeline would forget its last slot, too.
local function saveTimeline(it, tl)
  local out = fmt('%d %d %d %d %d %d %d %d %d', tl.at, tl.frac, tl.n, tl.whole, tl.rest, tl.rev, tl.burst, tl.last, tl.high)
  for _, e in ipairs(tl.nodes) do
    out = out .. fmt('\n%s %d %d %d %d', e.id, e.seen, e.cut, e.due, e.served)
  end
  call('SET', it.key, out, 'PX', fmt('%d', 3600000 + floor(tl.whole * 3 / 1000)))
end

local function catchUp(tl, heldUntil)
  if heldUntil > tl.high then
    tl.high, tl.last = heldUntil, max(tl.last, heldUntil)
    if micros(tl, tl.at, tl.frac, 0) < heldUntil + tl.spacing then
      tl.at, tl.frac = heldUntil + tl.spacing, 0
    end
  end
  local credit = 0
  if tl.burst > 0 then
    credit = advance(tl, 0, 0, min(tl.burst, GRANT, floor(1125899906842624 / tl.spacing)))
  end
  if tl.at < now - credit then tl.at, tl.frac = now - credit, 0 end
end

local function slotShare(it, tl, self, at, frac, open)
  local others, low, high, found, tie = {}, 0, 0, false, 1
  for _, e in ipairs(tl.nodes) do
    if e == self then
      tie = 0
    else
      high = max(high, e.served)
      local cut = e.cut > 0 and now - e.cut <= tl.fresh
      if cut then
        e.tie = tie
        others[#others + 1] = e
      end
      if cut or (e.due > 0 and now <= e.due + it.grace) then
        if not found or e.served < low then low, found = e.served, true end
      end
    end
  end
  it.competitors = #others + 1
  if self.served < 0 then
    if found then self.served = max(0, low - 1) else self.served = high end
  elseif found then
    self.served = max(self.served, low - (2 * floor(it.horizon / tl.spacing) + 8 + weightAfter(it, 0)))
  end
  if #others == 0 then return open end
  local near = countUntil(tl, at, frac, now + floor(it.horizon / 2), open)
  return max(near, shareNodes(self.served, open, open, others))
end

local function rateNext(it, tl, at, frac, units, open)
  local next = micros(tl, at, frac, max(units, open)) - it.horizon
  if units < open then next = min(next, micros(tl, at, frac, units) - floor(it.horizon / 2)) end
  return max(next, now + 1)
end

-- Quotas ----------------------------------------------------------------------------------------------------------

local quotas, specs = {}, {}

local function spec(i)
  local s = specs[i]
  if s then return s end
  local key, rev, list = match(ARGV[3 + ITEMS + i], '^(%d+) (%d+)(.*)$')
  s = {key = KEYS[num(key)], rev = num(rev), windows = {}}
  for span, limit in gmatch(list, '(%d+):(%d+)') do
    s.windows[#s.windows + 1] = {digits = span, span = num(span), limit = num(limit)}
  end
  specs[i] = s
  return s
end

-- What one quota has to say about an item: its windows brought to now and to the newest revision.
local function openQuota(it, i)
  local s = spec(i)
  local q = quotas[s.key]
  if not q then
    q = loadQuota(s.key)
    quotas[s.key] = q
  end
  local c = {index = #it.quotas, held = q, windows = {}, next = 0}
  for j, sw in ipairs(s.windows) do
    local w = q.spans[sw.digits]
    if not w then
      w = newWindow(sw.span)
      q.spans[sw.digits] = w
      q.windows[#q.windows + 1] = w
    end
    if s.rev >= w.rev then w.rev, w.limit = s.rev, sw.limit end
    w.widen = max(w.widen, it.horizon + it.late)
    expire(w, now)
    c.windows[j] = w
  end
  return c
end

local function rivalShare(it, c, slots)
  local q = c.held
  local self, isNew
  q.rivals, self, isNew = join(q.rivals, it.campaign, function(r)
    return now - r.seen > SECOND and now > r.due + it.grace
  end, {id = it.campaign, seen = 0, due = 0, demand = 0, cut = 0, cost = 0, service = 0})
  c.self = self
  self.cost = it.cost
  local active = self.demand > 0 and now <= self.due + it.grace
  local others, low, high, tie = {}, 0, 0, 1
  for _, r in ipairs(q.rivals) do
    if r == self then
      tie = 0
    else
      high = max(high, r.service)
      if r.demand > 0 and now <= r.due + it.grace then
        if #others == 0 or r.service < low then low = r.service end
        r.tie = tie
        others[#others + 1] = r
      end
    end
  end
  if #others == 0 then low = high end
  if not isNew and (active or #others == 0) then low = low - min(c.tight.limit, GRANT) * self.cost end
  self.service = max(self.service, low)
  return shareRivals(self, c.room, slots, others)
end

local function quotaShare(it, tl, self, slots)
  local soft, hard = slots, GRANT
  for _, c in ipairs(it.quotas) do
    for j, w in ipairs(c.windows) do
      if not c.tight or remaining(w) < remaining(c.tight) then c.tight, c.window = w, j - 1 end
    end
    c.room = min(remaining(c.tight), GRANT)
    c.share = rivalShare(it, c, slots)
    soft, hard = min(soft, c.share), min(hard, c.room)
  end
  if soft >= slots and hard >= slots then return slots end
  local others, tie = {}, 1
  for _, e in ipairs(tl.nodes) do
    if e == self then
      tie = 0
    elseif e.due > 0 and now <= e.due + it.grace then
      e.tie = tie
      others[#others + 1] = e
    end
  end
  if #others > 0 then soft = shareNodes(self.served, soft, soft, others) end
  return jobs(it, min(soft, slots), min(hard, slots))
end

local function quotaNext(it, units)
  local bound, next, never, need = nil, 0, false, weightAfter(it, units)
  for _, c in ipairs(it.quotas) do
    if not bound or min(c.share, c.room) < min(bound.share, bound.room) then bound = c end
    for _, w in ipairs(c.windows) do
      if need > w.limit then
        never = true
      elseif remaining(w) < need then
        c.next = max(c.next, freeAt(w, need))
      end
    end
    next = max(next, c.next)
  end
  it.boundQuota, it.boundWindow = bound.index, bound.window
  if never then return 0 end
  if next == 0 then return now + it.quantum end
  return next
end

local function settleQuotas(it, tl, units, slots, want)
  for _, c in ipairs(it.quotas) do
    local r = c.self
    if r then
      r.seen, r.demand, r.due = now, 0, 0
      r.service = r.service + units * r.cost
      if units < want and it.next > 0 and it.next <= max(now, c.next) + SECOND then
        if units < slots and min(c.share, c.room) < slots then r.cut = it.next end
        local use = it.next - now + it.grace
        if now <= r.cut + c.tight.span then use = c.tight.span end
        r.due, r.demand = it.next, min(want - units, floor(use / tl.spacing) + 1)
      end
      local low = r.service
      for _, o in ipairs(c.held.rivals) do low = min(low, o.service) end
      for _, o in ipairs(c.held.rivals) do o.service = o.service - low end
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
  catchUp(tl, it.heldUntil)
  local at, frac, want = tl.at, tl.frac, jobs(it, it.want, GRANT)
  local limit, g = want, it.gate and loadGate(it.gate)
  if g and not g.probe and g.at <= now then g = false end
  if g then
    if g.at > now and (g.probe or g.at > now + it.horizon) then
      it.bound, it.next = GATE, g.at
      if not g.probe then it.next = g.at - it.horizon end
      return
    end
    if g.probe then
      limit = jobs(it, 1, GRANT)
    elseif at < g.at then
      at, frac = g.at, 0
    end
  end

  local open = countUntil(tl, at, frac, now + it.horizon, GRANT)
  local self
  tl.nodes, self = join(tl.nodes, NODE, function(e)
    return now - e.seen > tl.fresh and now > e.due + it.grace
  end, {id = NODE, seen = 0, cut = 0, due = 0, served = -1})
  local slots = min(jobs(it, slotShare(it, tl, self, at, frac, open), GRANT), limit)
  local units = slots
  if slots > 0 then units = quotaShare(it, tl, self, slots) end
  if units > 0 then
    it.units, it.at, it.frac = units, at, frac
    tl.last = micros(tl, at, frac, units - 1)
    tl.high = max(tl.high, tl.last)
    tl.at, tl.frac = advance(tl, at, frac, units)
    for _, c in ipairs(it.quotas) do
      for _, w in ipairs(c.windows) do debit(w, now, units) end
    end
    if g and g.probe then
      g.at = now + SECOND
      call('SET', it.gate, fmt('%d 1', g.at), 'PX', 86400000)
    end
  end
  self.seen, self.cut, self.due = now, 0, 0
  self.served = self.served + units
  if units < slots then
    it.bound = QUOTA
    it.next = quotaNext(it, units)
    self.due = it.next
  elseif g and g.probe and units > 0 and units < want then
    it.bound, it.next = GATE, g.at
  elseif units < want then
    it.bound, it.next = RATE, rateNext(it, tl, at, frac, units, open)
    self.cut = now
  end
  settleQuotas(it, tl, units, slots, want)
end

local function parse(line)
  local t, gate, rev, n, whole, rest, burst, phase, want, held, horizon, quantum, late, cost, campaign, weights, list =
    match(line, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) ([%d,]*)|([%d,]*)$')
  local it = {key = KEYS[num(t)], gate = KEYS[num(gate)], rev = num(rev), n = num(n), whole = num(whole), rest = num(rest),
              burst = num(burst), phase = num(phase), want = num(want), heldUntil = num(held), horizon = num(horizon),
              quantum = num(quantum), late = num(late), cost = num(cost), campaign = campaign, quotas = {},
              units = 0, at = 0, frac = 0, next = 0, bound = 0, boundQuota = 0, boundWindow = 0, competitors = 1}
  it.grace = 2 * it.quantum
  if weights ~= '' then
    it.weights = {}
    for w in gmatch(weights, '%d+') do it.weights[#it.weights + 1] = num(w) end
  end
  if list ~= '' then
    for i in gmatch(list, '%d+') do it.quotas[#it.quotas + 1] = openQuota(it, num(i)) end
  end
  return it
end

local out = {fmt('%d', now)}
for i = 1, ITEMS do
  local it = parse(ARGV[3 + i])
  local tl = loadTimeline(it)
  if tl.n == 0 then
    it.bound = HELD
  elseif it.want > 0 then
    tl.spacing = tl.whole
    if tl.rest > 0 then tl.spacing = tl.spacing + 1 end
    tl.fresh = max(SECOND, 2 * tl.spacing)
    take(it, tl)
  end
  saveTimeline(it, tl)
  local line = fmt('%d %d %d %d %d %d %d %d %d %d %d %d', it.units, it.at, it.frac, tl.n, tl.whole, tl.rest, tl.rev,
    it.next, it.bound, it.boundQuota, it.boundWindow, it.competitors)
  for _, c in ipairs(it.quotas) do
    for _, w in ipairs(c.windows) do line = line .. fmt(' %d %d', remaining(w), resetAt(w, now)) end
  end
  out[#out + 1] = line
end
for _, q in pairs(quotas) do saveQuota(q) end
return store(KEYS[2], seq, table.concat(out, '\n'))
