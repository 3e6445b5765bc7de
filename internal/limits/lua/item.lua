-- What a daemon asks for one campaign; see take.lua.

-- Fields of items.
local ITEM = '<I2I2I7I7I7I7I7I4I4I7I5I5I5I4I2BB'
local WEIGHTLIST, DEMANDS = 1, 2 -- beside the format; false where there are none
local TIMELINE, GATE, IREV, IN, IWHOLE, IREST, IBURST, PHASE, WANT, LASTGRANTED, HORIZON, QUANTUM, LATE, ICOST, WEIGHTS, MORE,
  QUOTAS = 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19

-- The units of the jobs at the head that begin within the first soft units and end within the first hard ones.
local function jobs(it, soft, hard)
  soft = min(soft, it[WANT])
  local weights = it[WEIGHTLIST]
  if not weights then return max(0, min(soft, hard)) end
  local units = 0
  for i = 1, #weights do
    if units >= soft or units + weights[i] > hard then break end
    units = units + weights[i]
  end
  return units
end

local function weightAfter(it, units)
  local weights = it[WEIGHTLIST]
  if not weights then return 1 end
  for i = 1, #weights do
    if units <= 0 then return weights[i] end
    units = units - weights[i]
  end
  return 1
end

-- Reads one item. Its demands are the positions, from 1, of its quotas in the list of quotas, false where it has none.
local function parseItem(blob, pos)
  local it = {false, false, parse(ITEM, blob, pos)}
  pos = it[20]
  if it[WEIGHTS] > 0 then -- one more than there are
    local weights = {}
    for i = 1, it[WEIGHTS] - 1 do weights[i], pos = parse('<I4', blob, pos) end
    it[WEIGHTLIST] = weights
  end
  if it[QUOTAS] > 0 then
    local list = {}
    for i = 1, it[QUOTAS] do list[i], pos = parse('<I2', blob, pos) end
    it[DEMANDS] = list
  end
  return it, pos
end
