-- Reports windows and changes nothing.
--
-- KEYS  1 clock, then quotas
-- ARGV  1 override, 2 JSON, per quota: [rev, span, limit, span, limit, ...]
-- Returns "now", then per window " remaining reset_at".

local now = clock(KEYS[1], num(ARGV[1]), false)
local out = {fmt('%d', now)}
for i, spec in ipairs(decode(ARGV[2])) do
  local q = loadQuota(KEYS[1 + i])
  for j = 2, #spec, 2 do
    local w = findWindow(q, spec[j]) or newWindow(spec[j])
    if spec[1] >= w[REV] then w[LIMIT] = spec[j + 1] end
    expire(w, now)
    out[#out + 1] = fmt('%d %d', remaining(w), resetAt(w, now))
  end
end
return table.concat(out, ' ')
