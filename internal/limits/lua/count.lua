-- Reports how many units were taken of quotas. It changes nothing but the clock, which no later grant is to be dated before.
--
-- KEYS  1 clock, then quotas
-- ARGV  1 header, 2 quotas, as parseSpecs reads them
-- Returns head, then per quota: when its key was made, 0 where there is none, the units taken since, the most that a window counts or
-- counted last, and per window its reset, 0 unless it is a fixed one that was opened.

local now, failure = clock(KEYS[1], true)
if not now then return failure end
local out = {head(now)}
for _, spec in ipairs(parseSpecs(ARGV[2])) do
  local read, q = pcall(function() return loadQuota('', call('GET', KEYS[spec.key])) end)
  if not read then q = loadQuota('', nil) end -- of a value that cannot be read, nothing is granted
  local held = 0
  for i = 1, #q.windows do held = max(held, q.windows[i][COUNT]) end
  out[#out + 1] = pack('<I7I7I7', q.born, q.taken, held)
  for i = 1, #spec do
    local w = findWindow(q, spec[i].span)
    out[#out + 1] = pack('<I7', w and w[KIND] == FIXED and w[INDEX] or 0)
  end
end
return table.concat(out)
