-- What of a quota is kept for a campaign until it asks again. The reasons are in model/keep.go.

-- Whether anything is: next is when it asks again, short whether its quotas granted less than there were slots.
local function keeps(claims, c, now, next, units, short)
  local patience = SECOND
  if short then patience = max(SECOND, c.tight[SPAN]) end
  if next > max(now, c.next) + patience then return false end
  if units > 0 then return true end
  for i = 1, #claims do
    local other = claims[i]
    if other ~= c and other.share == 0 and other.kept > 0 then return false end
  end
  return true
end

-- How many units of the tightest window fall to the campaign in a span, beside the others that wait.
local function fair(it, c, now)
  if c.fair then return c.fair end
  local scale = 1000000000 -- of weights, the reciprocals of costs
  local self, rivals, grace = c.self, c.held.rivals, 2 * it[QUANTUM]
  local own = max(1, floor(scale / self[COST]))
  local all = own
  for i = 1, #rivals do
    local r = rivals[i]
    if r ~= self and isDue(r, now, grace) then all = all + max(1, floor(scale / r[COST])) end
  end
  c.fair = max(1, floor((min(c.tight[LIMIT], GRANT) * own + all - 1) / all))
  return c.fair
end

-- How many units the campaign can use before it asks again or, while it counts as cut short, in a span.
local function uses(it, spacing, claims, c, now, next, units, want)
  local use = next - now + 2 * it[QUANTUM]
  if now <= c.self[RCUT] + c.tight[SPAN] then use = c.tight[SPAN] end
  local n, head = min(want - units, floor(use / spacing) + 1), weightAfter(it, units)
  if c.even then
    local interval = floor(c.tight[SPAN] / max(1, c.tight[LIMIT]))
    n = min(n, max(head, 1 + floor(it[HORIZON] / max(1, interval))))
  end
  if next > max(now, c.next) then
    for i = 1, #claims do
      local other = claims[i]
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
