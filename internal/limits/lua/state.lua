-- What all scripts share: the binary format, the clock and the stored replies.
--
-- The scripts follow internal/limits/model step by step; read that first. All numbers are integers below 2^53. State
-- and arguments are written with the struct library, which Redis includes and which is several times faster than
-- text; 7 bytes hold a microsecond clock. Nothing here needs more than Lua 5.1, and every key is declared.
--
--   clock     string: shown witnessed epoch run_id, see clock
--   reply     string: the reply, which begins with its seq
--   gate      string: until mode since, see gate.lua
--   timeline  string, see timeline.lua
--   quota     string, see window.lua
--
-- ARGV[1] of every script: seq, override, low, high, witness, epoch
--   override takes the place of Redis' clock in tests, 0 otherwise. low to high is where the clock must be, 0: the caller does not know.
--   witness: the caller has known it for long. epoch: what the data must have, and the process that adopted it; 0: any.

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

local SEQ, OVERRIDE, LOW, HIGH, WITNESS, EPOCH = parse('<I7I7I7I7BI7', ARGV[1])
local SECOND = 1000000

-- The largest time that a script went by, that of the last witness, the epoch of the data, and before the process that adopted it.
local CLOCK = '<I7I7I7'

local function readClock(key)
  local v = call('GET', key)
  if not v then return 0, 0, 0, '' end
  local shown, witnessed, epoch, pos = parse(CLOCK, v)
  return shown, witnessed, epoch, sub(v, pos)
end

local function redisTime()
  if OVERRIDE > 0 then return OVERRIDE end
  local t = call('TIME')
  return num(t[1]) * SECOND + num(t[2])
end

-- The error for a clock that is more than a second off, nil for any other: counts would leave their windows too soon, or too late. It
-- says what the clock reads, and how long ago a caller saw it that knows it well.
local function refuseJump(now, witnessed)
  if LOW > 0 and (now < LOW - SECOND or now > HIGH + SECOND) then
    return redis.error_reply(string.format('CLOCK %d %d it has jumped', now, max(0, now - witnessed)))
  end
end

-- The store's time, or nil and an error. keep: the script changes something.
local function clock(key, keep)
  local now, shown, witnessed, epoch, process = redisTime(), readClock(key)
  if EPOCH > 0 then
    if epoch ~= EPOCH or not find(call('INFO', 'server'), process, 1, true) then
      return nil, redis.error_reply('EPOCH the data is not what it was')
    end
    if now < shown - SECOND then return nil, redis.error_reply('CLOCK it has gone back') end
  end
  local refused = refuseJump(now, witnessed)
  if refused then return nil, refused end
  now = max(now, shown)
  if keep and now > shown then
    if WITNESS > 0 then witnessed = now end
    call('SET', key, pack(CLOCK, now, witnessed, epoch) .. process)
  end
  return now
end

-- The head of a reply.
local function head(now) return pack('<I7I7', SEQ, now) end

-- Runs a script that changes something: body gets the time and returns the reply, which is stored. A script that has run already is not
-- run again, and its reply is returned. One that was overwritten by a later one cannot be returned again.
local function once(body)
  local v = call('GET', KEYS[2])
  local had = v and parse('<I7', v) or 0
  if had == SEQ then return v end
  if had > SEQ then return redis.error_reply('STALESEQ a later script has taken the place of this one') end
  local now, failure = clock(KEYS[1], true)
  if not now then return failure end
  local reply = body(now)
  call('SET', KEYS[2], reply, 'PX', 60000)
  return reply
end
