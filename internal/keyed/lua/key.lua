-- Executes a batch of checks of keys, in order. Times are milliseconds since 2025.
--
-- The value of a key is a byte of flags, the next free turn (flag 1), and until when the key is held (flag 2). Then follows each window: its span,
-- the number of its entries (128 more if their units take three bytes), and the time and the units of each. A time takes five bytes.
--
-- KEYS  the key of each check, and last the clock of the shard
-- ARGV  six for each check: what (turn, take, back, hold, show); the units; for how long the job may wait (back: when it was counted; hold: until
--       when, 0: no longer); the time before which nothing is sent; 1 if the job has had its turn; the windows as limit,span,begin,end;
--       begin and end are those of the calendar's period, 0 for a sliding window, -1 for one that begins at its first use.
--       Last, the epoch that the shard's data must have, 0 for any
-- Returns for each check
--   turn  0 if the job need not wait; how long its turn is reserved ahead, at most an hour; CAPPED less this time if it may not wait so long
--   take  the time at which it was counted, negative; else the same as turn
--   back, hold  0
--   show  the line's length in time, how long the key is held, how long until a unit is free, and the units used of each window
-- or an error if the epoch is another one: the data was lost.

local call, byte, char, floor, max, min = redis.call, string.byte, string.char, math.floor, math.max, math.min
local HOUR, MINUTE, LATE, CAPPED = 3600000, 60000, 100, -1000000000000000
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000) - 1735689600000
local after = now + 1 -- of an event of this call, which may lie in the millisecond that has begun

local function number(v, at)
  local a, b, c, d, e = byte(v, at, at + 4)
  return a + 256 * b + 65536 * c + 16777216 * d + 4294967296 * e
end

local function bytes(n)
  return char(n % 256, floor(n / 256) % 256, floor(n / 65536) % 256, floor(n / 16777216) % 256, floor(n / 4294967296))
end

local function load(key)
  local s, v = {turn = 0, held = 0, windows = {}}, call('GET', key)
  if not v then return s end
  local flags, at = byte(v), 2
  if flags % 2 == 1 then s.turn, at = number(v, at), at + 5 end
  if flags > 1 then s.held, at = number(v, at), at + 5 end
  while at < #v do
    local list, n = {}, byte(v, at + 5)
    local small = n < 128
    s.windows[number(v, at)], at = list, at + 6
    for i = 1, 2 * (n % 128), 2 do
      local units, more, most = byte(v, at + 5, small and at + 5 or at + 7)
      list[i], list[i + 1] = number(v, at), small and units or units + 256 * more + 65536 * most
      at = at + (small and 6 or 8)
    end
  end
  return s
end

-- Drops the entries that have left the windows. Returns for how many units there is room, and when there is for these units.
local function look(s, windows, units)
  local room, free = 2 ^ 53, max(now, s.held)
  for _, w in ipairs(windows) do
    local limit, length, from, to = w[1], w[2], w[3], w[4]
    local list, kept, ends, used = s.windows[length] or {}, {}, {}, 0
    for i = 1, #list, 2 do
      local e = from > 0 and (list[i] >= from and to or 0) or from < 0 and list[1] + length or list[i] + length
      if e > now then
        kept[#kept + 1], kept[#kept + 2] = list[i], list[i + 1]
        ends[#ends + 1], used = e, used + list[i + 1]
      end
    end
    local over = used + units - limit
    for i, e in ipairs(ends) do
      if over > 0 then over, free = over - kept[2 * i], max(free, e) end
    end
    room = min(room, limit - used)
    s.windows[length], w.used, w.ends, w.expire = kept, used, ends[#ends] or 0, ends
  end
  return room, free
end

-- The time that an entry gets: beyond 16 units, entries of a 32nd of the span are one, at its end.
local function entryTime(w, at)
  if w[1] > 16 then at = math.ceil(at / max(1, floor(w[2] / 32))) * max(1, floor(w[2] / 32)) end
  if w[3] > 0 then at = min(at, w[4] - 1) end
  return at
end

local function count(s, windows, units)
  for _, w in ipairs(windows) do
    local list, at = s.windows[w[2]], entryTime(w, after)
    if list[#list - 1] == at then list[#list] = list[#list] + units else list[#list + 1], list[#list + 2] = at, units end
    w.ends = w[3] > 0 and w[4] or at + w[2]
  end
end

local function giveBack(s, windows, units, counted)
  for _, w in ipairs(windows) do
    local list, at = s.windows[w[2]], entryTime(w, counted)
    for i = #list - 1, 1, -2 do
      if list[i] == at then
        list[i + 1] = list[i + 1] - units
        if list[i + 1] <= 0 then table.remove(list, i + 1); table.remove(list, i) end
        break
      end
    end
  end
end

local function save(key, s, windows)
  local ends, flags, value = 0, 0, ''
  if s.turn > now then flags, value, ends = 1, bytes(s.turn), s.turn end
  if s.held > now then flags, value, ends = flags + 2, value .. bytes(s.held), max(ends, s.held) end
  for _, w in ipairs(windows) do
    local list, small = s.windows[w[2]], true
    for i = 2, #list, 2 do small = small and list[i] < 256 end -- a limit may have been lowered since
    if #list > 0 then
      value, ends = value .. bytes(w[2]) .. char(#list / 2 + (small and 0 or 128)), max(ends, w.ends)
      for i = 1, #list, 2 do
        local units = list[i + 1]
        value = value .. bytes(list[i]) .. (small and char(units) or char(units % 256, floor(units / 256) % 256, floor(units / 65536)))
      end
    end
  end
  if ends > now then call('SET', key, char(flags) .. value, 'PX', ends - now) else call('DEL', key) end
end

-- The windows of a check; most of a batch have the same ones. Their pace is the longest time of a unit, and their gap the shortest.
local parsed = {}
local function windowsOf(text)
  local windows = parsed[text]
  if not windows then
    windows = {pace = 1, gap = HOUR}
    for limit, span, begin, finish in string.gmatch(text, '(%d+),(%d+),(%-?%d+),(%d+)') do
      windows[#windows + 1] = {tonumber(limit), tonumber(span), tonumber(begin), tonumber(finish)}
      local unit = math.ceil(span / limit)
      windows.pace, windows.gap = max(windows.pace, unit), max(1, min(windows.gap, unit))
    end
    parsed[text] = windows
  end
  return windows
end

-- The clock is packed by package limits: three times of seven bytes, of which the last is the epoch.
local expected = tonumber(ARGV[#ARGV])
if expected > 0 then
  local clock = call('GET', KEYS[#KEYS]) or ''
  local a, b, c, d, e, f, g = byte(clock, 15, 21)
  if not g or a + 256 * (b + 256 * (c + 256 * (d + 256 * (e + 256 * (f + 256 * g))))) ~= expected then
    return redis.error_reply('EPOCH the data is not what it was')
  end
end

-- How many units have reserved turns that are to come, if so much time is between two.
local function linedUp(s, step) return max(0, math.ceil((s.turn - now) / step) - 1) end

-- When all windows have room for these units behind those of this call that go before and those with turns. What is known of these is the end of
-- their line: they are the gap apart where the windows had room, and the pace apart behind that.
local function behind(s, windows, units, before)
  local free, most, paced = now, linedUp(s, windows.gap), linedUp(s, windows.pace)
  for _, w in ipairs(windows) do
    local over = w.used + before + min(most, max(0, w[1] - w.used - before) + paced) + units - w[1]
    for i, e in ipairs(w.expire) do
      if over > 0 then over, free = over - s.windows[w[2]][2 * i], max(free, e) end
    end
    if over > 0 then free = max(free, w[3] > 0 and w[4] or now + w[2]) end
  end
  return free
end

-- The time between two turns: the gap as long as the longer windows have room for all that wait, then the pace.
local function stepOf(s, windows, units, before)
  for _, w in ipairs(windows) do
    if math.ceil(w[2] / w[1]) > windows.gap and w.used + before + linedUp(s, windows.gap) + units > w[1] then return windows.pace end
  end
  return windows.gap
end

local given, answers = {}, {} -- given: the units that need not wait, by key
for i = 1, #KEYS - 1 do
  local key, a = KEYS[i], 6 * (i - 1)
  local what, units, most, from = ARGV[a + 1], tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4])
  local s, windows = load(key), windowsOf(ARGV[a + 6])
  local room, free = look(s, windows, units)
  free = max(free, from)
  for _, w in ipairs(windows) do
    if units > w[1] then free = now + HOUR end -- never, while the limit is so low
  end
  local due, changed = free <= now and s.turn <= now, true
  if what == 'show' then
    answers[i], changed = {max(0, s.turn - now), max(0, s.held - now), free - now}, false
    for _, w in ipairs(windows) do table.insert(answers[i], w.used) end
  elseif what == 'hold' then
    s.held, s.turn, answers[i] = most > 0 and max(s.held, most) or 0, most > 0 and s.turn or 0, 0
  elseif what == 'back' then
    giveBack(s, windows, units, most)
    answers[i] = 0
  elseif what == 'take' and (due or free <= now and ARGV[a + 5] == '1') then
    count(s, windows, units)
    answers[i] = -after
  elseif what == 'turn' and due and (given[key] or 0) + units <= room then
    given[key], answers[i], changed = (given[key] or 0) + units, 0, false
    if most > 0 and given[key] + units > room then -- the next one must not go before this one was sent
      s.turn, changed = min(behind(s, windows, units, given[key]), now + MINUTE), true
    end
  elseif what == 'take' and ARGV[a + 5] == '1' and free - now <= min(LATE, windows.pace / 2) then
    answers[i], changed = free - now, false -- the one before was late
  else
    local turn = max(free, s.turn, behind(s, windows, units, given[key] or 0))
    if free - now > most or most > 0 and turn - now > most then
      answers[i], changed = CAPPED - (turn - now), false
    elseif turn - now > most then
      answers[i], changed = 0, false
    elseif turn - now > HOUR then
      answers[i], changed = HOUR, false
    else
      s.turn, answers[i] = turn + stepOf(s, windows, units, given[key] or 0) * units, turn - now
    end
  end
  if changed then save(key, s, windows) end
end
return answers
