-- Reports windows and changes nothing.
--
-- KEYS  1 clock, then quotas
-- ARGV  1 override, then per quota "rev span:limit span:limit ..."
-- Returns "now", then per window " remaining reset_at".

local now = clock(KEYS[1], num(ARGV[1]), false)
local out = {fmt('%d', now)}
for i = 2, #KEYS do
  local q = loadQuota(KEYS[i])
  local rev, windows = match(ARGV[i], '^(%d+)(.*)$')
  for span, limit in gmatch(windows, '(%d+):(%d+)') do
    local w = q.spans[span] or newWindow(num(span))
    if num(rev) >= w.rev then w.limit = num(limit) end
    expire(w, now)
    out[#out + 1] = fmt('%d %d', remaining(w), resetAt(w, now))
  end
end
return table.concat(out, ' ')
