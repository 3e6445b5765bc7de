-- Stores a node's counters of eventual quotas and returns what all nodes together have used.
--
-- KEYS  quotas: hashes of
--         total        units that all nodes have used
--         n:<node>     the node's own total, and when it reported last: total:at
--         w:<span>     how far use is ahead of the window's limit, in nanoseconds of that limit, and when: debt:at
-- ARGV  1 node, 2 fresh, 3 keep (microseconds), then per quota:
--         own        the node's cumulative total
--         known      the part of it that is in cluster
--         cluster all nodes' total in the last answer the node got, for a root that lost its data; 0 if none n windows,
--         and for each: span (microseconds), limit, debt as the node believes it; -1 if it does not
-- Returns per quota: total, nodes, then the debt of each window; all separated by spaces.
--
-- A node sets its total and never adds to it, so a repeated call changes nothing. What a node used since its last
-- report is added to the debts if that was not long ago. Otherwise the node was cut off from this root, or the root has
-- lost its data: the units are old, and the node's own debts, from other roots, are more accurate.

local call, num, fmt, floor, max, min = redis.call, tonumber, string.format, math.floor, math.max, math.min
local match, sub = string.match, string.sub

local t = call('TIME')
local now = num(t[1]) * 1000000 + num(t[2])
local node, fresh, keep = 'n:' .. ARGV[1], num(ARGV[2]), num(ARGV[3])
local pos, out = 4, {}

local function arg()
  pos = pos + 1
  return num(ARGV[pos - 1])
end

-- The hash as a table. Entries older than keep are deleted; those from the future, by a clock that was ahead, count as of now.
local function load(key)
  local fields, old = {}, {}
  local flat = call('HGETALL', key)
  for i = 1, #flat, 2 do
    local value, at = match(flat[i + 1], '^(%d+):(%d+)$')
    if not value then
      fields[flat[i]] = {num(flat[i + 1])}
    elseif num(at) < now - keep then
      old[#old + 1] = flat[i]
    else
      fields[flat[i]] = {num(value), min(num(at), now)}
    end
  end
  if #old > 0 then call('HDEL', key, unpack(old)) end
  return fields
end

for i = 1, #KEYS do
  local own, known, cluster, windows = arg(), arg(), arg(), arg()
  local fields = load(KEYS[i])
  local total = fields.total and fields.total[1] or cluster
  local mine = fields[node]
  local before = mine and mine[1] or known
  local used = max(0, own - before)
  total = total + used
  fields[node] = {max(own, before), now}
  local nodes = 0
  for name, v in pairs(fields) do
    if sub(name, 1, 2) == 'n:' and v[2] >= now - fresh then nodes = nodes + 1 end
  end
  local line = {fmt('%.0f %d', total, nodes)}
  local set = {'total', fmt('%.0f', total), node, fmt('%.0f:%.0f', fields[node][1], now)}
  for _ = 1, windows do
    local span, limit, believed = arg(), arg(), arg()
    local field = fmt('w:%.0f', span)
    local w, debt = fields[field], 0
    if w then debt = max(0, w[1] - (now - w[2]) * 1000) end
    local recent = believed < 0
    if mine then recent = mine[2] >= now - fresh end
    if recent and limit > 0 then
      debt = debt + floor(used / limit * span * 1000 + 0.5)
    else
      debt = max(debt, believed)
    end
    debt = min(debt, 4000 * span) -- of a job that is larger than many limits
    set[#set + 1], set[#set + 2] = field, fmt('%.0f:%.0f', debt, now)
    line[#line + 1] = fmt('%.0f', debt)
  end
  call('HSET', KEYS[i], unpack(set))
  call('PEXPIRE', KEYS[i], fmt('%.0f', keep / 1000))
  out[i] = table.concat(line, ' ')
end
return out
