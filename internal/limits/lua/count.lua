-- Reports how many units were taken of quotas. It changes nothing but the clock, which no later grant is to be dated before.
--
-- KEYS  1 clock, then quotas
-- ARGV  1 header, 2 quotas, as parseSpecs reads them
-- Returns head, then per quota: when its key was made, 0 where there is none, the units taken since, and per window its reset, 0 unless
-- it is a fixed one that was opened, what it counts, and from when on.

local now, failure = clock(KEYS[1], true)
if not now then return failure end
local out = {head(now)}
for _, spec in ipairs(parseSpecs(ARGV[2])) do
  local read, q = pcall(function() return loadQuota('', call('GET', KEYS[spec.key])) end)
  if not read then q = loadQuota('', nil) end -- of a value that cannot be read, nothing is granted
  out[#out + 1] = pack('<I7I7', q.born, q.taken)
  for i = 1, #spec do
    local w, fixed = findWindow(q, spec[i].span), false
    if w then
      expire(w, now, spec[i].period)
      fixed = w[KIND] == FIXED
    end
    out[#out + 1] = pack('<I7I7I7', fixed and w[INDEX] or 0, w and w[COUNT] or 0, fixed and w[FIRST] or max(0, now - spec[i].span))
  end
end
return table.concat(out)
