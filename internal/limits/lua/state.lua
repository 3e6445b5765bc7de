-- What all scripts share: the binary format, the clock and the stored replies.
--
-- The scripts follow internal/limits/model step by step; read that first. All numbers are integers below 2^53. State
-- and arguments are written with the struct library, which Redis includes and which is several times faster than
-- text; 7 bytes hold a microsecond clock. Nothing here needs more than Lua 5.1, and every key is declared.
--
--   clock     string: now offset steps epoch run_id
--   reply     string: the reply, which begins with its seq
--   gate      string: until mode since, see gateOf
--   timeline  string, see timeline.lua
--   quota     string, see window.lua
--
-- ARGV[1] of every script: seq, override, low, high, steps, sure, epoch, check
--   override takes the place of Redis' clock in tests, 0 otherwise. low to high is where the caller expects the clock
--   to be, if steps is still the clock's; without a low, high is how long after the script before it this one runs at
--   most. check: 0 none, 1 epoch and process.

local floor, max, min = math.floor, math.max, math.min
local find, match, rep, sub = string.find, string.match, string.rep, string.sub
local call, num = redis.call, tonumber

local pack, parse
local struct = rawget(_G, 'struct')
if struct then
  pack, parse = struct.pack, struct.unpack
else
  -- The same for stores that embed plain Lua: little-endian unsigned integers (B, In), and strings of the length
  -- that goes before them (c0).
  local byte, char = string.byte, string.char
  local formats = {}
  local function sizes(f)
    local list = formats[f]
    if not list then
      list = {}
      for kind, n in string.gmatch(f, '([BIc])(%d*)') do list[#list + 1] = kind == 'B' and 1 or num(n) end
      formats[f] = list
    end
    return list
  end
  pack = function(f, ...)
    local out, args = {}, {...}
    for i, size in ipairs(sizes(f)) do
      local v = args[i]
      if size == 0 then out[#out + 1] = v end
      for _ = 1, size do
        out[#out + 1] = char(v % 256)
        v = floor(v / 256)
      end
    end
    return table.concat(out)
  end
  parse = function(f, s, pos)
    local out = {}
    pos = pos or 1
    for _, size in ipairs(sizes(f)) do
      if size == 0 then
        local n = out[#out]
        out[#out], pos = sub(s, pos, pos + n - 1), pos + n
      else
        local v = 0
        for i = pos + size - 1, pos, -1 do v = v * 256 + byte(s, i) end
        out[#out + 1], pos = v, pos + size
      end
    end
    out[#out + 1] = pos
    return unpack(out)
  end
end

local SEQ, OVERRIDE, LOW, HIGH, STEPS, SURE, EPOCH, CHECK = parse('<I7I7I7I7I4BI7B', ARGV[1])

local CLOCK = '<I7I7I4I7'

-- The offset, nearer to 0 for the time that has passed: by a microsecond in 2,000. A clock that was set right must not be
-- contradicted for good, since calendars are the world's. That is 0.05 %, less than what forecasts allow in a minute, and than the
-- steps of a window.
local function slewed(offset, seen, now)
  local every = 2000
  local back = max(0, floor(now / every) - floor(seen / every))
  if offset > 0 then return max(0, offset - back) end
  return min(0, offset + back)
end

-- The store's time, which only passing time moves: it never goes back, and a step of Redis' clock is absorbed into the
-- offset. A request that was merely in transit for long looks like a step forward, so the caller is first asked
-- whether it is sure. Returns now and the steps, or nil and the error.
local function clock(key, keep)
  local most = 50000 -- that the clock may be off
  local bias = 4503599627370496 -- added to offsets, which may be negative
  local raw = OVERRIDE
  if raw == 0 then
    local t = call('TIME')
    raw = num(t[1]) * 1000000 + num(t[2])
  end
  local seen, offset, steps, epoch, process = 0, 0, 0, 0, ''
  local v = call('GET', key)
  if v then
    local pos
    seen, offset, steps, epoch, pos = parse(CLOCK, v)
    offset, process = offset - bias, sub(v, pos)
  end
  if CHECK > 0 then
    if epoch ~= EPOCH or not find(call('INFO', 'server'), process, 1, true) then
      return nil, redis.error_reply('EPOCH the data is not what it was')
    end
  end
  if offset ~= 0 then offset = slewed(offset, seen, raw + offset) end
  local now = raw + offset
  if LOW == 0 and HIGH > 0 and keep and now > seen + HIGH then return nil, redis.error_reply('CLOCK has it stepped?') end
  if LOW > 0 and steps == STEPS then
    local to = now
    if now < LOW - most then
      to = LOW
    elseif now > HIGH + most then
      if SURE == 0 then return nil, redis.error_reply(string.format('CLOCK %d microseconds ahead', now - HIGH)) end
      to = HIGH
    end
    if to ~= now then
      offset, now, steps = offset + to - now, to, steps + 1
    end
  end
  now = max(now, seen)
  if keep and (now > seen or steps ~= STEPS) then
    call('SET', key, pack(CLOCK, now, offset + bias, steps, epoch) .. process)
  end
  return now, steps
end

-- The reply stored for the seq, nil if the script has not run yet. A reply that was overwritten by a later one cannot
-- be returned again, and its script must not run again either.
local function stored(key)
  local v = call('GET', key)
  if not v then return nil end
  local had = parse('<I7', v)
  if had == SEQ then return v end
  if had > SEQ then return redis.error_reply('STALESEQ a later script has taken the place of this one') end
  return nil
end

-- Stores a reply, which begins with its seq, and returns it.
local function store(key, reply)
  call('SET', key, reply, 'PX', 60000)
  return reply
end

-- The head of a reply.
local function head(now, steps) return pack('<I7I7I4', SEQ, now, steps) end

-- The holes of a timeline, which follow its nodes, from pos on: before and last of each, see model/hole.go. Those that have
-- passed are left out.
local HOLEBEFORE, HOLELAST = 1, 2
local function holesOf(v, pos, now)
  local holes = {}
  local count
  count, pos = parse('<B', v, pos)
  for _ = 1, count do
    local before, last
    before, last, pos = parse('<I7I7', v, pos)
    if last >= now then holes[#holes + 1] = {before, last} end
  end
  return holes
end

local function packHoles(holes)
  local v = pack('<B', #holes)
  for i = 1, #holes do v = v .. pack('<I7I7', holes[i][HOLEBEFORE], holes[i][HOLELAST]) end
  return v
end

-- The modes of gates, one digit each:
--   0  throttled: the destination asked to wait
--   1  failing
--   2  misconfigured
--   3  refused; of single destinations only
--   4  throttled, and a job was let through since
-- A gate is half-open when its time is over, until it is opened.

-- The time until which a gate is closed, its mode and since when; nil where there is none.
local function gateOf(v)
  if not v then return nil end
  local at, mode, since = match(v, '^(%d+) (%d) (%d+)')
  return num(at), mode, num(since)
end
