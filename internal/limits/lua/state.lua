-- What all scripts share: the clock, stored replies, and the state of quotas.
--
-- The scripts follow internal/limits/model step by step; read that first. All numbers are integers below 2^53,
-- written with %d (tostring keeps 14 digits and would ruin a microsecond clock). Nothing here needs more than
-- Lua 5.1 with cjson, and every key is declared.
--
-- What is kept is written as JSON arrays, since cjson reads them several times faster than patterns and tonumber
-- do, and lies in a hash, since HSET leaves a key's time to live alone and so costs half of a SET that renews it.
--
--   clock     string: now
--   reply     string: the reply, whose first line is seq
--   gate      string: until probe(0|1)
--   timeline  hash, field s: [at, frac, n, whole, rest, rev, burst, last, high, renew, [node, ...]]
--               node: [id, seen, due, cut, served]
--   quota     hash, field s: [renew, [window, ...], [rival, ...]]
--               window: [span, limit, rev, widen, base, count, index, units, first]
--                 base: the index of the first bucket; index, units: the newest bucket, relative to base;
--                 first: the oldest bucket that is not empty
--               rival: [id, seen, due, demand, cut, cost, service]
--             field <span>: "index:units," for each bucket older than the newest that is not empty, oldest first.
--               Apart, since it is long and needed only when a bucket is begun or falls out.
--   renew is when the key's time to live is to be set again.

local floor, max, min = math.floor, math.max, math.min
local fmt, match, gmatch, sub = string.format, string.match, string.gmatch, string.sub
local call, num, decode = redis.call, tonumber, cjson.decode

-- Fields of nodes and rivals.
local ID, SEEN, DUE = 1, 2, 3
local CUT, SERVED = 4, 5
local DEMAND, RCUT, COST, SERVICE, TIE = 4, 5, 6, 7, 8
-- Fields of windows. Those from WIDTH on are not kept in s; OLDER is nil until it is needed.
local SPAN, LIMIT, REV, WIDEN, BASE, COUNT, INDEX, UNITS, FIRST = 1, 2, 3, 4, 5, 6, 7, 8, 9
local WIDTH, KEY, CHANGED, OLDER = 10, 11, 12, 13

-- The store's time: never before any time it gave out. override replaces Redis' clock in tests, 0 otherwise.
local function clock(key, override, store)
  local now = override
  if now == 0 then
    local t = call('TIME')
    now = num(t[1]) * 1000000 + num(t[2])
  end
  local seen = num(call('GET', key) or '0')
  if seen >= now then return seen end
  if store then call('SET', key, fmt('%d', now)) end
  return now
end

-- The reply stored for seq, nil if the script has not run yet. A reply that was overwritten by a later one cannot
-- be given again, and its script must not run again either.
local function stored(key, seq)
  local v = call('GET', key)
  if not v then return nil end
  local had = num(match(v, '^%d+'))
  if had == seq then return v end
  if had > seq then return redis.error_reply('STALESEQ a later script has taken the place of this one') end
  return nil
end

-- Keeps a reply, which begins with its seq, and returns it.
local function store(key, reply)
  call('SET', key, reply, 'PX', 60000)
  return reply
end

local function width(span) return max(1000, floor((span + 59) / 60)) end

local function newWindow(span, key) return {span, 0, 0, 0, 0, 0, 0, 0, 0, width(span), key, false, ''} end

-- The window's older buckets.
local function older(w)
  if not w[OLDER] then w[OLDER] = call('HGET', w[KEY], fmt('%d', w[SPAN])) or '' end
  return w[OLDER]
end

local function setOlder(w, list) w[OLDER], w[CHANGED] = list, true end

-- A quota's windows, in the order in which they came, and its rivals.
local function loadQuota(key)
  local v = call('HGET', key, 's')
  if not v then return {key = key, renew = 0, windows = {}, rivals = {}} end
  v = decode(v)
  local windows = v[2]
  for i = 1, #windows do
    local w = windows[i]
    w[WIDTH], w[KEY], w[CHANGED] = width(w[SPAN]), key, false
  end
  return {key = key, renew = v[1], windows = windows, rivals = v[3]}
end

local function findWindow(q, span)
  local windows = q.windows
  for i = 1, #windows do
    if windows[i][SPAN] == span then return windows[i] end
  end
  return nil
end

-- The key lives for two spans and a minute after its last use, so that it never goes before its counts do.
local function saveQuota(q, now)
  local renew = now >= q.renew
  if renew then q.renew = now + 30000000 end
  local out, longest, windows, rivals = {fmt('[%d,[', q.renew)}, 0, q.windows, q.rivals
  local set
  for i = 1, #windows do
    local w = windows[i]
    longest = max(longest, w[1] + w[4])
    out[i + 1] = fmt(i == 1 and '[%d,%d,%d,%d,%d,%d,%d,%d,%d]' or ',[%d,%d,%d,%d,%d,%d,%d,%d,%d]', w[1], w[2], w[3], w[4], w[5],
      w[6], w[7], w[8], w[9])
    if w[CHANGED] then
      set = set or {}
      set[#set + 1] = fmt('%d', w[SPAN])
      set[#set + 1] = w[OLDER]
    end
  end
  out[#out + 1] = '],['
  for i = 1, #rivals do
    local r = rivals[i]
    out[#out + 1] = fmt(i == 1 and '[%q,%d,%d,%d,%d,%d,%d]' or ',[%q,%d,%d,%d,%d,%d,%d]', r[1], r[2], r[3], r[4], r[5], r[6], r[7])
  end
  out[#out + 1] = ']]'
  if set then
    call('HSET', q.key, 's', table.concat(out), unpack(set))
  else
    call('HSET', q.key, 's', table.concat(out))
  end
  if renew then call('PEXPIRE', q.key, fmt('%d', floor(longest / 500) + 90000)) end
end

-- When the bucket with this index falls out of the window.
local function leaves(w, index)
  return (w[BASE] + index + 1) * w[WIDTH] + w[SPAN] + w[WIDEN]
end

local function expire(w, now)
  if w[COUNT] == 0 or leaves(w, w[FIRST]) > now then return end
  local list = older(w)
  if list ~= '' then
    local pos, first = 1, nil
    for index, units, after in gmatch(list, '(%d+):(%d+),()') do
      index = num(index)
      if leaves(w, index) > now then
        first = index
        break
      end
      w[COUNT] = w[COUNT] - num(units)
      pos = after
    end
    list = sub(list, pos)
    setOlder(w, list)
    w[FIRST] = first or w[INDEX]
  end
  if list == '' and leaves(w, w[INDEX]) <= now then w[COUNT], w[UNITS] = 0, 0 end
end

local function remaining(w) return max(0, w[LIMIT] - w[COUNT]) end

local function debit(w, now, units)
  local index = floor(now / w[WIDTH])
  if w[COUNT] == 0 then
    w[BASE], w[INDEX], w[UNITS], w[FIRST] = index, 0, 0, 0
    if older(w) ~= '' then setOlder(w, '') end
  end
  index = index - w[BASE]
  if index ~= w[INDEX] then
    if w[UNITS] > 0 then
      setOlder(w, older(w) .. fmt('%d:%d,', w[INDEX], w[UNITS]))
    elseif older(w) == '' then
      w[FIRST] = index
    end
    w[INDEX], w[UNITS] = index, 0
  end
  w[UNITS], w[COUNT] = w[UNITS] + units, w[COUNT] + units
end

-- When there will be room for so many units, which is later than now.
local function freeAt(w, units)
  local lack = w[COUNT] + units - w[LIMIT]
  for index, n in gmatch(older(w), '(%d+):(%d+),') do
    lack = lack - num(n)
    if lack <= 0 then return leaves(w, num(index)) end
  end
  return leaves(w, w[INDEX])
end

-- When the window will be empty if nothing is granted. The newest bucket may have been emptied by a refund.
local function resetAt(w, now)
  if w[COUNT] == 0 then return now end
  if w[UNITS] > 0 then return leaves(w, w[INDEX]) end
  local last
  for index in gmatch(older(w), '(%d+):') do last = index end
  return leaves(w, num(last))
end
