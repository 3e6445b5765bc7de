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
      if d >= 0 then -- units that start before x or, on equal terms, first
        ahead = ahead + min(floor((d + o[TIE] - 1) / o[COST]) + 1, o[DEMAND])
      end
    end
    if ahead >= room then hi = i else lo = i + 1 end
  end
  return lo
end

-- Makes room in a list of nodes or rivals for one more: removes the one that has not been seen for longest, if necessary.
local function makeRoom(list)
  if #list < 64 then return end
  local oldest = 1
  for i = 1, #list do
    if list[i][SEEN] < list[oldest][SEEN] then oldest = i end
  end
  table.remove(list, oldest)
end

local CLAIM = 15 * SECOND

-- Removes outdated nodes from a list and finds id in it. If it is missing, there is room for one more afterwards.
local function joinNodes(list, id, now, fresh, grace)
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
  if not self then makeRoom(kept) end
  return kept, self
end

-- Until when room is kept for a daemon that said how much it can use. It may be gone: daemons ask every 12.5 s at least.
local function claimEnd(r, grace) return min(r[DUE] + grace, r[SEEN] + CLAIM) end

-- Whether a daemon was told to ask again, and may still do so.
local function isDue(r, now, grace) return r[DUE] > 0 and now <= claimEnd(r, grace) end

-- Finds the daemon among the rivals of a quota, and adds it if it is missing; tells whether it is new. Those that are gone are removed first,
-- once for all items: what is now is the same for all.
local function joinRivals(q, id, now, grace)
  if q.joined == grace then return q.self, false end
  local kept, self = {}, nil
  for i = 1, #q.rivals do
    local r = q.rivals[i]
    if r[ID] == id then self = r end
    if r[ID] == id or now - r[SEEN] <= SECOND or now <= claimEnd(r, grace) then kept[#kept + 1] = r end
  end
  local isNew = not self
  if isNew then
    makeRoom(kept)
    self = {0, id, 0, 0, 0, 0, 0}
    kept[#kept + 1] = self
  end
  q.rivals, q.self, q.joined = kept, self, grace
  return self, isNew
end

-- Keeps service small: only differences matter.
local function levelRivals(q)
  local rivals = q.rivals
  if #rivals == 0 then return end
  local low = rivals[1][SERVICE]
  for i = 2, #rivals do low = min(low, rivals[i][SERVICE]) end
  for i = 1, #rivals do rivals[i][SERVICE] = rivals[i][SERVICE] - low end
end

-- How many of the available slots a node may take: those assigned to it, or those so near that they would be lost if they were left
-- for another; how many compete for them, and on how many daemons jobs wait.
local function slotShare(it, tl, self, now, at, frac, available)
  local nodes = tl[NODES]
  if #nodes == 1 then
    if self[SERVED] < 0 then self[SERVED] = 0 end
    return available, 1, 1
  end
  local others, low, high, found, tie, grace, waiting = {}, 0, 0, false, 1, 2 * it[QUANTUM], 1
  for i = 1, #nodes do
    local e = nodes[i]
    if e == self then
      tie = 0
    else
      high = max(high, e[SERVED])
      if e[CUT] + e[DUE] > 0 then waiting = waiting + 1 end
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
  if #others == 0 then return available, 1, waiting end
  local near = countUntil(tl, at, frac, now + floor(it[HORIZON] / 2), available)
  return max(near, shareNodes(self[SERVED], available, available, others)), #others + 1, waiting
end
