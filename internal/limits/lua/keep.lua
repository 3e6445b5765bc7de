-- What of a quota is kept for a campaign until it asks again. The reasons are in model/keep.go.

-- Whether anything is: next is when it asks again, short whether its quotas granted less than there were slots.
local function keeps(demands, c, now, next, units, short)
  local patience = SECOND
  if short then patience = max(SECOND, c.tight[SPAN]) end
  if next > max(now, c.next) + patience then return false end
  if units > 0 then return true end
  for i = 1, #demands do
    local other = demands[i]
    if other ~= c and other.share == 0 and other.keptUntil > 0 then return false end
  end
  return true
end

-- When a fixed window begins again.
local function resetOf(w)
  if w[KIND] == FIXED and w[INDEX] > 0 then return w[INDEX] end
  return math.huge
end

local claim
do -- a function has 200 local variables at most
  -- How many units of the tightest window fall to the campaign in a span, beside the others that wait.
  local function fair(it, c, now)
    if c.fair then return c.fair end
    local scale = 1000000000 -- of weights, the reciprocals of costs
    local self, rivals, grace = c.self, c.quota.rivals, 2 * it[QUANTUM]
    local own = max(1, floor(scale / self[COST]))
    local all = own
    for i = 1, #rivals do
      local r = rivals[i]
      if r ~= self and isDue(r, now, grace) then all = all + max(1, floor(scale / r[COST])) end
    end
    c.fair = max(1, floor((min(c.tight[LIMIT], GRANT) * own + all - 1) / all))
    return c.fair
  end

  -- How many units of a window the campaign can use when it asks again, before some of those that it used come back.
  local function usesOf(it, spacing, demands, c, w, now, next, units, slots, want)
    local use = min(next - now, it[HORIZON]) + 2 * it[QUANTUM]
    if w[KIND] == SLIDING then use = max(use, w[WIDTH]) end
    local till, reset = c.self[RCUT] + w[SPAN], resetOf(w)
    if now <= till then
      if next < reset and reset < math.huge then till = reset end
      use = max(use, min(w[SPAN], till - next - 1))
    end
    local head = weightAfter(it, units)
    local n = min(want - units, max(head, floor(use / spacing) + 1))
    if c.even then
      n = min(n, max(head, 1 + floor(it[HORIZON] / max(1, c.interval, spacing))))
    end
    if units < slots and next > max(now, c.next) then
      for i = 1, #demands do
        local other = demands[i]
        if other.binds then
          local share, span = fair(it, other, now), other.tight[SPAN]
          if other.even then
            share = floor(use / max(1, floor(span / share))) + 1
          else
            share = share * (floor(use / span) + 1)
          end
          n = min(n, max(head, share))
        end
      end
    end
    return n
  end

  -- About how many units of a window can be granted until a time.
  local function grantedUntil(w, now, at)
    if w[KIND] ~= FIXED then return remaining(w) + floor(w[LIMIT] * min(at - now, w[SPAN]) / w[SPAN]) end
    if w[INDEX] <= at then return remaining(w) + w[LIMIT] end
    return remaining(w)
  end

  -- The same of all windows.
  local function uses(it, spacing, demands, c, now, next, units, slots, want)
    local n = usesOf(it, spacing, demands, c, c.tight, now, next, units, slots, want)
    if c.even or #c.windows == 1 then return n end
    local others = grantedUntil(c.tight, now, next)
    for i = 1, #c.windows do
      local w = c.windows[i]
      local left = max(0, remaining(w) - others)
      if w[KIND] == FIXED and w[SPAN] > c.tight[SPAN] and left < want - units - n then
        n = max(n, usesOf(it, spacing, demands, c, w, now, next, units, slots, want) - left)
      end
    end
    return n
  end

  -- Lets units be kept for the campaign until it asks again.
  claim = function(it, spacing, demands, c, now, next, units, slots, want)
    local r = c.self
    if units < slots and min(c.share, c.hard) < slots then r[RCUT] = next end
    r[DUE], r[DEMAND] = next, uses(it, spacing, demands, c, now, next, units, slots, want)
    for i = 1, #c.windows do
      local w = c.windows[i]
      local others = c.owed
      if w ~= c.tight then others = min(others, grantedUntil(c.tight, now, next)) end
      if w[KIND] == FIXED and w[SPAN] >= c.tight[SPAN] and remaining(w) <= r[DEMAND] + others then r[RCUT] = max(r[RCUT], w[INDEX]) end
    end
    if c.joint then r[DEMAND] = c.spec.all end
  end
end

-- When a daemon asks for what is left of its campaigns' claims: in a moment or, where nothing remains, when something comes back.
local function nextOf(it, c, now)
  local at = now + it[QUANTUM]
  for j = 1, #c.windows do
    local w = c.windows[j]
    if w[LIMIT] > 0 then at = max(at, windowNext(it, c, w, now, 1)) end
  end
  return at
end

-- Lets the claims of a daemon stand that asks for nothing yet.
local function stay(it, demands, now, name)
  for i = 1, #demands do
    local c = demands[i]
    local r = c.binds and c.spec.left > 0 and claimOf(c.quota, name)
    if r then r[SEEN], r[DUE], r[DEMAND] = now, max(r[DUE], nextOf(it, c, now)), c.spec.left end
  end
end
