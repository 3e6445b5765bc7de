-- The quotas that items of a take have in common: each is brought to now once, and its windows are looked at again only after
-- units were counted.

-- The windows of a quota, brought to now and to the newest revision. Items of one quota find them as the one before left them.
local function windowsOf(q, spec, now, widen)
  local o = q.opened
  if o and o.spec == spec and o.widen == widen then return o end
  o = {spec = spec, widen = widen, windows = openWindows(q, spec, now, widen), state = false, tight = false, window = 0, hard = 0}
  if #q.windows > #spec and q.rev == spec.rev then dropWindows(q, spec) end
  q.opened = o
  return o
end

-- What was found of windows is no longer so.
local function changedWindows(o) o.state, o.tight = false, false end

-- Finds the window with the least room, by what left gives for each, and what all of them have.
local function tightest(o, left)
  local hard, soft, windows = GRANT, nil, o.windows
  for j = 1, #windows do
    local w = windows[j]
    hard = min(hard, remaining(w))
    local n = left(w)
    if not soft or n < soft then soft, o.tight, o.window = n, w, j - 1 end
  end
  o.hard = hard
  return min(soft, GRANT)
end

-- What a quota has for an item. A pace is soft, as that of a timeline: the first unit of a job must be within the horizon.
-- What remains is hard: all of the job must fit.
local function measure(it, c, now)
  local o = c.opened
  if c.even then
    c.soft = tightest(o, function(w)
      return paced(it, w, now, c.wasOwed)
    end)
  elseif o.tight then
    c.soft = o.hard
  else
    c.soft = tightest(o, remaining)
  end
  c.hard, c.tight, c.window = o.hard, o.tight, o.window
end

-- When the window can grant a job of units, which fit the limit; 0 if it can now.
local function windowNext(it, c, w, now, units)
  local next = 0
  if remaining(w) < units then next = freeAt(w, units) end
  if c.even then
    local first = w[PAT] - it[HORIZON]
    if w[PFRAC] > 0 then first = first + 1 end
    if first > now then next = max(next, first) end
  end
  return next
end

-- When there is more room, of which some may fall to the daemon.
local function growsAt(it, c, now)
  local w = c.tight
  if c.even then
    local n = paced(it, w, now, c.wasOwed)
    if n < remaining(w) then
      local p = pacing(w, now, c.wasOwed)
      return micros(p, p[AT], p[FRAC], n) - it[HORIZON]
    end
  end
  if w[COUNT] == 0 or w[LIMIT] == 0 then return math.huge end
  return freeAt(w, remaining(w) + 1)
end

-- When all windows can grant a unit, but for those whose limit is 0; 0 if they can now.
local function opensAt(it, c, now)
  local at = 0
  for j = 1, #c.windows do
    local w = c.windows[j]
    if w[LIMIT] > 0 then at = max(at, windowNext(it, c, w, now, 1)) end
  end
  return at
end

-- When a daemon asks for what is left of its campaigns' claims: in a moment or, where nothing remains, when something comes back.
local function nextOf(it, c, now) return max(now + it[QUANTUM], opensAt(it, c, now)) end

-- The states of a quota's windows, which many items share.
local function stateOf(o, now)
  if not o.state then
    local list, windows = {}, o.windows
    for j = 1, #windows do
      local w = windows[j]
      list[j] = pack('<I7I7I7', remaining(w), resetAt(w, now), nextUnit(w))
    end
    o.state = table.concat(list)
  end
  return o.state
end
