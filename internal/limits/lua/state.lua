-- What all scripts share: the clock, stored replies, and the state of quotas.
--
-- The scripts follow internal/limits/model step by step; read that first. All numbers are integers below 2^53,
-- written with %d (tostring keeps 14 digits and would ruin a microsecond clock). Nothing here needs more than
-- plain Lua 5.1, and every key is declared.
--
-- Values (fields by spaces, records by newlines; ids contain neither):
--   clock     now
--   reply     seq, newline, the reply
--   gate      until probe(0|1)
--   timeline  at frac n whole rest rev burst last high
--             then per node: id seen cut due served
--   quota     per window: w span limit rev widen base count index units older
--                 base: the index of its first bucket; index, units: the newest bucket, relative to base;
--                 older: "index:units," for each older bucket that is not empty, oldest first
--             then per rival: r campaign seen due demand cut cost service

local floor, max, min = math.floor, math.max, math.min
local fmt, match, gmatch, sub = string.format, string.match, string.gmatch, string.sub
local call, num = redis.call, tonumber

-- The store's time: never before any time it gave out. override replaces Redis' clock in tests, 0 otherwise.
local function clock(key, override, store)
  local now = override
  if now == 0 then
    local t = call('TIME')
    now = num(t[1]) * 1000000 + num(t[2])
  end
  local seen = num(call('GET', key) or '0')
  if seen >= now then return seen end
  if store then call('SET', key, fmt('%d', now), 'EX', 2592000) end
  return now
end

-- The reply stored for seq, nil if the script has not run yet. A reply that was overwritten by a later one cannot
-- be given again, and its script must not run again either.
local function stored(key, seq)
  local v = call('GET', key)
  if not v then return nil end
  local had, reply = match(v, '^(%d+)\n(.*)$')
  had = num(had)
  if had == seq then return reply end
  if had > seq then return redis.error_reply('STALESEQ a later script has taken the place of this one') end
  return nil
end

local function store(key, seq, reply)
  call('SET', key, fmt('%d', seq) .. '\n' .. reply, 'PX', 60000)
  return reply
end

local function newWindow(span)
  return {span = span, width = max(1000, floor((span + 59) / 60)), limit = 0, rev = 0, widen = 0, base = 0, count = 0,
          index = 0, units = 0, older = ''}
end

local function parseWindow(line)
  local span, limit, rev, widen, base, count, index, units, older =
    match(line, '^w (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S*)$')
  span = num(span)
  return {span = span, width = max(1000, floor((span + 59) / 60)), limit = num(limit), rev = num(rev), widen = num(widen),
          base = num(base), count = num(count), index = num(index), units = num(units), older = older}
end

-- A quota's windows by span, in a list that keeps their order, and its rivals.
local function loadQuota(key)
  local q = {key = key, spans = {}, windows = {}, rivals = {}}
  local v = call('GET', key)
  if not v then return q end
  for line in gmatch(v, '[^\n]+') do
    if sub(line, 1, 1) == 'w' then
      local w = parseWindow(line)
      -- By the span's digits: an integer key of some millions makes some Luas grow an array that long.
      q.spans[fmt('%d', w.span)] = w
      q.windows[#q.windows + 1] = w
    else
      local id, seen, due, demand, cut, cost, service = match(line, '^r (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
      q.rivals[#q.rivals + 1] = {id = id, seen = num(seen), due = num(due), demand = num(demand), cut = num(cut),
                                 cost = num(cost), service = num(service)}
    end
  end
  return q
end

-- The key lives for two spans and a minute after its last use, so that it never goes before its counts do.
local function saveQuota(q)
  local out, longest = {}, 0
  for i, w in ipairs(q.windows) do
    longest = max(longest, w.span + w.widen)
    out[i] = fmt('w %d %d %d %d %d %d %d %d %s', w.span, w.limit, w.rev, w.widen, w.base, w.count, w.index, w.units, w.older)
  end
  for _, r in ipairs(q.rivals) do
    out[#out + 1] = fmt('r %s %d %d %d %d %d %d', r.id, r.seen, r.due, r.demand, r.cut, r.cost, r.service)
  end
  call('SET', q.key, table.concat(out, '\n'), 'PX', fmt('%d', floor(longest / 500) + 60000))
end

-- When the bucket with this index falls out of the window.
local function leaves(w, index)
  return (w.base + index + 1) * w.width + w.span + w.widen
end

local function expire(w, now)
  if w.count == 0 then return end
  if w.older ~= '' then
    local pos, older = 1, w.older
    for index, units, after in gmatch(older, '(%d+):(%d+),()') do
      if leaves(w, num(index)) > now then break end
      w.count = w.count - num(units)
      pos = after
    end
    if pos > 1 then w.older = sub(older, pos) end
  end
  if w.older == '' and leaves(w, w.index) <= now then
    w.count, w.units = 0, 0
  end
end

local function remaining(w) return max(0, w.limit - w.count) end

local function debit(w, now, units)
  local index = floor(now / w.width)
  if w.count == 0 then w.base, w.index, w.units = index, 0, 0 end
  index = index - w.base
  if index ~= w.index then
    if w.units > 0 then w.older = w.older .. fmt('%d:%d,', w.index, w.units) end
    w.index, w.units = index, 0
  end
  w.units, w.count = w.units + units, w.count + units
end

-- When there will be room for so many units, which is later than now.
local function freeAt(w, units)
  local lack = w.count + units - w.limit
  for index, n in gmatch(w.older, '(%d+):(%d+),') do
    lack = lack - num(n)
    if lack <= 0 then return leaves(w, num(index)) end
  end
  return leaves(w, w.index)
end

-- When the window will be empty if nothing is granted. The newest bucket may have been emptied by a refund.
local function resetAt(w, now)
  if w.count == 0 then return now end
  if w.units > 0 then return leaves(w, w.index) end
  local last
  for index in gmatch(w.older, '(%d+):') do last = index end
  return leaves(w, num(last))
end
