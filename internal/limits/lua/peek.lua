-- Reports windows and changes nothing.
--
-- KEYS  1 clock, then quotas
-- ARGV  1 header, 2 quotas, as parseSpecs reads them
-- Returns head, then per window remaining, reset_at, where nothing remains, when the next unit will, 0 for never, and when the
-- first, a quarter, a half and three quarters of the units counted will have left, 0 in a window that counts none or begins anew
-- as a whole.

-- As many buckets of a list are read at once as the stack surely has room for.
local READ = 60

local function leaving(w)
  local at, quarter, gone = {0, 0, 0, 0}, 0, 0
  local count, index = w[COUNT], w[FIRST]
  if w[KIND] == FIXED or count == 0 then return 0, 0, 0, 0 end
  local function pass(units)
    gone = gone + units
    while units > 0 and quarter < 4 and gone * 4 >= count * quarter do
      quarter = quarter + 1
      at[quarter] = leaves(w, index)
    end
  end
  local list, size, form = w[OLDER], SIZE[w[KIND]], sub(ENTRY[w[KIND]], 2)
  for pos = 1, #list, READ * size do
    local n = min(READ, (#list - pos + 1) / size)
    local read = {parse('<' .. rep(form, n), list, pos)}
    for i = 1, 2 * n, 2 do
      if pos + i > 2 then index = index + read[i] end
      pass(read[i + 1])
    end
    if quarter == 4 then return at[1], at[2], at[3], at[4] end
  end
  index = w[INDEX]
  pass(w[UNITS])
  return at[1], at[2], at[3], at[4]
end

local now, steps = clock(KEYS[1], false)
if not now then return steps end
local out = {head(now, steps)}
for _, spec in ipairs(parseSpecs(ARGV[2])) do
  local key = KEYS[spec.key]
  local q = loadQuota(key, call('GET', key))
  for _, w in ipairs(openWindows(q, spec, now, 0)) do
    out[#out + 1] = pack('<I7I7I7I7I7I7I7', remaining(w), resetAt(w, now), nextUnit(w), leaving(w))
  end
end
return table.concat(out)
