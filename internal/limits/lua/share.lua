-- Who gets how much of what several want: nodes of the slots of a campaign, rivals of the units of a quota. See "Fair sharing" in
-- model/doc.go.

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

-- Removes outdated entries from a list of nodes or rivals and finds id in it. If id is missing, there is room
-- for one more afterwards: the one not seen for longest is removed if necessary. Nobody is awaited for longer than most after
-- the last ask.
local function join(list, id, now, fresh, grace, most)
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

-- Whether a node is expected to ask for units of a quota soon.
local function awaited(e, now, grace)
  return e[DUE] > 0 and e[DUE] - SECOND <= now and now <= e[DUE] + grace
end

-- How many of the open slots a node may take: those assigned to it, or those so near that they would be lost if they were left
-- for another; and how many compete for them.
local function slotShare(it, tl, self, now, at, frac, open)
  local nodes = tl[NODES]
  if #nodes == 1 then
    if self[SERVED] < 0 then self[SERVED] = 0 end
    return open, 1
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
      if cut or awaited(e, now, grace) then
        if not found or e[SERVED] < low then low, found = e[SERVED], true end
      end
    end
  end
  if self[SERVED] < 0 then
    if found then self[SERVED] = max(0, low - 1) else self[SERVED] = high end
  elseif found then
    self[SERVED] = max(self[SERVED], low - (2 * floor(it[HORIZON] / tl[SPACING]) + 8 + weightAfter(it, 0)))
  end
  if #others == 0 then return open, 1 end
  local near = countUntil(tl, at, frac, now + floor(it[HORIZON] / 2), open)
  return max(near, shareNodes(self[SERVED], open, open, others)), #others + 1
end
