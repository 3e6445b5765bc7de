-- Executes a batch of checks of keys, in order. Times are milliseconds since 2025.
--
-- The value of a key packs what was sent, what has turns (or was sent), the end of the line of turns, and until when the key is held. What was sent
-- and what has turns are, for each window, times, ascending, each followed by the units of that time. A window's id is its span, negative for one
-- with a beginning. From a minute after the end of its line, a key has no turns: who has not come by then does not come.
--
-- KEYS  the key of each check, then the clock of the shard, and last the caller's latest answers
-- ARGV  six for each check: what (turn, take, back, leave, hold, show); the units; for how long the job may wait (back: when it was counted; leave:
--       how far ahead its turn is; hold: for how long, 0: no longer); for how long nothing is sent; 1 if the job has had its turn; the windows as limit,span,begin,end;
--       begin and end are those of the calendar's period, 0 for a sliding window, -1 for one that begins at its first use.
--       Then the number of the batch, negative if it may have been executed: what it was answered is returned then, or else nothing is given; 0 for none.
--       Last, the epoch that the shard's data must have, 0 for any
-- Returns for each check
--   turn  0 if the job need not wait; how long its turn is ahead, at most an hour; CAPPED less this time if it may not wait so long
--   take  the time at which it was counted, negative; else the same as turn
--   back, leave, hold  0
--   show  how long the line is, how long the key is held, how long until a unit is free, and the units used of each window
-- or an error if the epoch, or the process that keeps it, is another one: the data was lost.

local call, ceil, floor, max, min = redis.call, math.ceil, math.floor, math.max, math.min
local HOUR, MINUTE, LATE, CAPPED = 3600000, 60000, 2000, -1000000000000000
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000) - 1735689600000
local after = now + 1 -- of an event of this call, which may lie in the millisecond that has begun

-- The clock is packed by package limits: three times of seven bytes, of which the last is the epoch, and the process.
local expected = tonumber(ARGV[#ARGV])
if expected > 0 then
  local clock = call('GET', KEYS[#KEYS - 1]) or ''
  local a, b, c, d, e, f, g = string.byte(clock, 15, 21)
  if not g or a + 256 * (b + 256 * (c + 256 * (d + 256 * (e + 256 * (f + 256 * g))))) ~= expected or
    not string.find(call('INFO', 'server'), string.sub(clock, 22), 1, true) then
    return redis.error_reply('EPOCH the data is not what it was')
  end
end

local batch = tonumber(ARGV[#ARGV - 1])
local again = batch < 0
if again then
  local last = call('GET', KEYS[#KEYS])
  if last then last = cmsgpack.unpack(last) end
  if last and last[1] == -batch then return last[2] end
end

-- The windows of a check; most of a batch have the same ones. Beyond 16 units, those of a 32nd of the span are one entry, at the end of that grain.
-- The gap is the shortest time of a unit: turns are so far apart.
local parsed = {}
local function windowsOf(text)
  if not parsed[text] then
    local windows = {gap = HOUR, ids = {}}
    for limit, span, from, to in string.gmatch(text, '(%d+),(%d+),(%-?%d+),(%d+)') do
      local w = {limit = tonumber(limit), span = tonumber(span), from = tonumber(from), to = tonumber(to)}
      w.id, w.grain = w.from == 0 and w.span or -w.span, w.limit > 16 and max(1, floor(w.span / 32)) or 1
      windows[#windows + 1], windows.ids[w.id], windows.gap = w, true, max(1, min(windows.gap, ceil(span / limit)))
    end
    parsed[text] = windows
  end
  return parsed[text]
end

-- When units of a time leave a window; begun is when its period began, if it has no calendar.
local function endOf(w, at, begun)
  if w.from > 0 then return at < w.from and w.from or at < w.to and w.to or 2 * w.to - w.from end
  return (w.from < 0 and begun or at) + w.span
end

local moved
-- Drops the units that have left their windows by a time, and returns the first time from then on at which so many more fit. Those after the latest
-- are of a clock that was ahead, and count as of then.
local function look(lists, windows, units, at, latest)
  local free = at
  for _, w in ipairs(windows) do
    local list, over, begun = lists[w.id], units - w.limit, nil
    if list then
      local kept, ends = {}, {}
      for i = 1, #list, 2 do
        if list[i] > latest + w.grain then list[i], moved = latest, true end
        if not begun or list[i] >= begun + w.span then begun = list[i] end
        local e = endOf(w, list[i], begun)
        if e > at then ends[#ends + 1], kept[#kept + 1], kept[#kept + 2], over = e, list[i], list[i + 1], over + list[i + 1] end
      end
      lists[w.id], w.used = kept, over + w.limit - units
      for i, e in ipairs(ends) do
        if over > 0 then over, free = over - kept[2 * i], max(free, e) end
      end
    else
      w.used = 0
    end
    if over > 0 then free = max(free, at + HOUR + 1) end -- never, while the limit is so low
  end
  return free
end

-- Counts units at a time, or gives them back: those counted at that time, or else the last ones before.
local function add(lists, windows, units, at)
  for _, w in ipairs(windows) do
    local list, t = lists[w.id] or {}, ceil(at / w.grain) * w.grain
    if w.from > 0 and at < w.to then t = min(t, w.to - 1) end
    local i = #list - 1
    while i > 0 and list[i] > t do i = i - 2 end
    if i > 0 and (list[i] == t or units < 0) then
      list[i + 1] = list[i + 1] + units
      if list[i + 1] <= 0 then table.remove(list, i); table.remove(list, i) end
    elseif units > 0 then
      table.insert(list, max(i, -1) + 2, t)
      table.insert(list, max(i, -1) + 3, units)
    end
    lists[w.id] = list
  end
end

local SENT, TURNS, LINE, HELD, BEGUN = 1, 2, 3, 4, 5

local function load(key)
  local v, ok, s = call('GET', key), nil, nil
  if v then ok, s = pcall(cmsgpack.unpack, v) end
  return ok and type(s) == 'table' and s[HELD] and s or {{}, {}, 0, 0}
end

local function save(key, s, windows)
  local last, turns = s[HELD], s[LINE]
  for _, w in ipairs(windows) do
    local sent, turn = s[SENT][w.id], s[TURNS][w.id]
    if sent and sent[1] then last = max(last, endOf(w, sent[#sent - 1], sent[#sent - 1])) end
    if turn and turn[1] then turns = max(turns, endOf(w, turn[#turn - 1], turn[#turn - 1])) end
  end
  for id, sent in pairs(s[SENT]) do -- windows that were taken away are kept until their units have left
    if not windows.ids[id] and (not sent[1] or sent[#sent - 1] + 2 * math.abs(id) <= now) then s[SENT][id], s[TURNS][id] = nil, nil end
  end
  last = max(last, min(turns, s[LINE] + MINUTE))
  if last > now then call('SET', key, cmsgpack.pack(s), 'PX', last - now) else call('DEL', key) end
end

-- Whether nobody comes to the turns of a line: the key has been free for longer than from one turn to the next, and nothing was sent. That is so if
-- their campaign is paused, or their daemon was lost.
local function deserted(s, windows, units, from)
  local since = now - windows.gap - LATE
  local sent = windows[1] and s[SENT][windows[1].id] or {}
  return s[LINE] > now and from <= now and max(s[HELD], s[BEGUN] or 0, sent[1] and sent[#sent - 1] or 0) <= since
    and look(s[SENT], windows, units, since, now) <= since
end

local states, answers = {}, {}
for i = 1, #KEYS - 2 do
  local key, a = KEYS[i], 6 * (i - 1)
  local what, units, most, from, turned = ARGV[a + 1], tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3]), now + tonumber(ARGV[a + 4]), ARGV[a + 5] == '1'
  local windows, s, changed = windowsOf(ARGV[a + 6]), states[key] or load(key), true
  states[key], moved = s, false
  if s[LINE] + MINUTE <= now or s[LINE] > now + HOUR + windows.gap * units or deserted(s, windows, units, from) then
    s[TURNS], s[LINE], s[BEGUN] = {}, 0, nil
  end
  local free = max(look(s[SENT], windows, units, now, now), s[HELD], from)
  if what == 'show' then
    answers[i], changed = {max(0, s[LINE] - now), max(0, s[HELD] - now), free - now}, false
    for _, w in ipairs(windows) do table.insert(answers[i], w.used) end
  elseif what == 'hold' then
    s[HELD], s[LINE], answers[i] = most > 0 and max(s[HELD], now + most) or 0, most > 0 and s[LINE] or 0, 0
  elseif what == 'back' then
    add(s[SENT], windows, -units, most)
    add(s[TURNS], windows, -units, most)
    answers[i] = 0
  elseif what == 'leave' then
    if s[LINE] <= now + most + windows.gap * units then -- it is the last one; others follow those before
      add(s[TURNS], windows, -units, now + most)
      s[LINE] = min(s[LINE], now + most)
    end
    answers[i] = 0
  elseif again then
    answers[i], changed = 0, false
  elseif what == 'take' and turned and free <= now then
    add(s[SENT], windows, units, after)
    answers[i] = -after
  elseif most == 0 then
    answers[i], changed = free > now and CAPPED - (free - now) or 0, false
  elseif what == 'take' and turned and free - now <= windows.gap then
    answers[i], changed = free - now, false -- the one before was late
  else
    if s[LINE] == 0 then
      s[BEGUN] = free
      for id, list in pairs(s[SENT]) do s[TURNS][id] = list end -- look makes them lists of their own
    end
    local turn = look(s[TURNS], windows, units, max(free, s[LINE]), now + HOUR)
    if what == 'take' and turn <= now then
      add(s[SENT], windows, units, after)
      add(s[TURNS], windows, units, after)
      answers[i], s[LINE] = -after, now
    elseif turn - now > most then
      answers[i], changed = CAPPED - (turn - now), false
    elseif turn - now > HOUR then
      answers[i], changed = HOUR, false
    else
      add(s[TURNS], windows, units, turn)
      answers[i], s[LINE] = turn - now, turn + (turn > now and windows.gap * units or 0)
      changed = turn > now or look(s[TURNS], windows, 1, now, now + HOUR) > now -- else the next one may go as well
    end
  end
  if changed or moved then save(key, s, windows) end
end
if batch ~= 0 then call('SET', KEYS[#KEYS], cmsgpack.pack({math.abs(batch), answers}), 'PX', HOUR) end
return answers
