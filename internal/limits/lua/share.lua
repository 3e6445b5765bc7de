-- Who gets how much of what several daemons want, the rivals: the slots of a campaign, or the units of a quota. See "Fair sharing" in
-- model/doc.go.

-- How many of room units, at most want, fall to self, if each goes to the one who has received least: the least n for which room units go
-- before the one after.
local function share(self, room, want, others)
  local lo, hi = 0, max(0, min(want, room))
  while lo < hi do
    local n = floor((lo + hi) / 2)
    local ahead, x = n, self[SERVICE] + n * self[COST] - 1
    for i = 1, #others do
      local o = others[i]
      local d = x - o[SERVICE] + o[TIE]
      if d >= 0 then ahead = ahead + min(floor(d / o[COST]) + 1, o[DEMAND]) end -- units that start before or, on equal terms, first
      if ahead >= room then break end
    end
    if ahead >= room then hi = n else lo = n + 1 end
  end
  return lo
end

-- The list without those that have gone: that were not seen for the time idle, nor are due. With the daemon, and whether it is new.
local function join(list, id, now, idle, grace)
  local kept, self = {}, nil
  for i = 1, #list do
    local r = list[i]
    if r[ID] == id then self = r end
    if r[ID] == id or now - r[SEEN] <= idle or now <= claimEnd(r, grace) then kept[#kept + 1] = r end
  end
  if self then return kept, self, false end
  if #kept >= 64 then
    local oldest = 1
    for i = 1, #kept do
      if kept[i][SEEN] < kept[oldest][SEEN] then oldest = i end
    end
    table.remove(kept, oldest)
  end
  self = {0, id, 0, 0, 0, 0, 0}
  kept[#kept + 1] = self
  return kept, self, true
end

-- The daemon among the rivals of a quota, and whether it is new. Those that have gone are removed once for all items: what is now is the
-- same for all.
local function joinQuota(q, id, now, grace)
  if q.joined == grace then return q.self, false end
  local isNew
  q.rivals, q.self, isNew = join(q.rivals, id, now, SECOND, grace)
  q.joined = grace
  return q.self, isNew
end

-- The others of a list that compete, and the least service that any of them has received; if none does, the most of all.
local function competitors(list, self, competes)
  local others, low, high, tie = {}, nil, 0, 1
  for i = 1, #list do
    local r = list[i]
    if r == self then
      tie = 0
    else
      high = max(high, r[SERVICE])
      if competes(r) then
        if not low or r[SERVICE] < low then low = r[SERVICE] end
        r[TIE] = tie
        others[#others + 1] = r
      end
    end
  end
  return others, low or high
end

-- Keeps service small: only differences matter.
local function levelRivals(q)
  local rivals = q.rivals
  if #rivals == 0 then return end
  local low = rivals[1][SERVICE]
  for i = 2, #rivals do low = min(low, rivals[i][SERVICE]) end
  for i = 1, #rivals do rivals[i][SERVICE] = rivals[i][SERVICE] - low end
end

-- How many of the available slots a daemon may take: those assigned to it, or those so near that they would be lost if they were left
-- for another; how many compete for them, and on how many daemons jobs wait.
local function slotShare(it, tl, self, isNew, now, at, frac, available)
  local list, waiting = tl[RIVALS], 1
  if #list == 1 then return available, 1, 1 end
  for i = 1, #list do
    if list[i] ~= self and list[i][DEMAND] + list[i][DUE] > 0 then waiting = waiting + 1 end
  end
  local others, low = competitors(list, self, function(r) return r[DEMAND] > 0 and now - r[SEEN] <= tl[FRESH] end)
  if not isNew then low = low - (2 * floor(it[HORIZON] / tl[SPACING]) + 8 + weightAfter(it, 0)) end
  self[SERVICE] = max(self[SERVICE], low)
  if #others == 0 then return available, 1, waiting end
  local near = countUntil(tl, at, frac, now + floor(it[HORIZON] / 2), available)
  return max(near, share(self, available, available, others)), #others + 1, waiting
end
