-- Executes a batch of checks of keys, in order. Times are milliseconds since 2025.
--
-- Keys that share some bits lie in one hash, which takes half the memory of keys of their own; it lives as long as any of them, and a little
-- longer. A field packs the second from which it is empty, until when the key is held, the end of the line of turns, since when nothing has
-- happened in the line (it began, units were sent or left a window), what was sent, and what has turns (or was sent): for each window times,
-- ascending, each followed by the units of that time. A window's id is its span, negative for one with a beginning. From a minute after the end of
-- its line, a key has no turns: who has not come by then does not come.
--
-- KEYS  the hash of each check, then the clock of the shard, and last the caller's latest answers
-- ARGV  four for each check: the field; what is asked, as what,units,turned,windows: what is turn, take, back, leave, hold or show, turned is 1 if the job
--       has had its turn, a window is limit,span,begin,end, where begin and end are those of the calendar's period, 0 for a sliding window, -1 for one
--       that begins at its first use; for how long the job may wait (back: when it was counted; leave: how far ahead its turn is; hold: for how long,
--       0: no longer); for how long nothing is sent.
--       Then the number of the batch, negative if it may have been executed: what it was answered is returned then, or else nothing is given; 0 for none.
--       Last, the epoch that the shard's data must have, 0 for any
-- Returns for each check
--   turn  0 if the job need not wait; how long its turn is ahead, at most an hour; CAPPED less this time if it may not wait so long
--   take  the time at which it was counted, negative; else the same as turn
--   back, leave, hold  0
--   show  how long the line is, how long the key is held, how long until a unit is free, and the units used of each window
--   FOREIGN for any of these whose hash is none: another program has overwritten it
-- or an error if the epoch, or the process that keeps it, is another one: the data was lost.

local call, ceil, floor, max, min = redis.call, math.ceil, math.floor, math.max, math.min
local HOUR, MINUTE, LATE, CAPPED, FOREIGN = 3600000, 60000, 2000, -1000000000000000, -4000000000000000
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
local function parse(text)
  if not parsed[text] then
    local what, units, turned, rest = string.match(text, '(%a+),(%d+),(%d),(.*)')
    local windows = {what = what, units = tonumber(units), turned = turned == '1', gap = HOUR, ids = {}}
    for limit, span, from, to in string.gmatch(rest, '(%d+),(%d+),(%-?%d+),(%d+)') do
      local w = {limit = tonumber(limit), span = tonumber(span), from = tonumber(from), to = tonumber(to)}
      w.id, w.grain = w.from == 0 and w.span or -w.span, w.limit > 16 and max(1, floor(w.span / 32)) or 1
      windows[#windows + 1], windows.ids[w.id], windows.gap = w, w, max(1, min(windows.gap, ceil(span / limit)))
    end
    parsed[text] = windows
  end
  return parsed[text]
end

-- When units of a time leave a window; begun is when its period began, if it has no calendar.
local function endOf(w, at, begun)
  if w.from == 0 then return at + w.span end
  if w.from < 0 then return begun + w.span end
  return at < w.from and w.from or at < w.to and w.to or 2 * w.to - w.from
end

local moved, left -- whether units were moved, and when the last of those that have left did so
-- Drops the units that have left their windows by a time, and returns the first time from then on at which so many more fit. Those after the latest
-- are of a clock that was ahead, and count as of then.
local function look(lists, windows, units, at, latest)
  local free = at
  for k = 1, #windows do
    local w = windows[k]
    local list, over = lists[w.id], units - w.limit
    if list then
      local begun, kept = nil, 0
      for i = 1, #list, 2 do
        local t = list[i]
        if t > latest + w.grain then t, moved = latest, true end
        if not begun or t >= begun + w.span then begun = t end
        local e = endOf(w, t, begun)
        if e <= at then
          left = max(left, e)
        else
          kept, over = kept + 2, over + list[i + 1]
          list[kept - 1], list[kept] = t, list[i + 1]
        end
      end
      for i = #list, kept + 1, -1 do list[i] = nil end
      w.used, begun = over + w.limit - units, nil
      for i = 1, kept, 2 do
        if over <= 0 then break end
        if not begun or list[i] >= begun + w.span then begun = list[i] end
        over, free = over - list[i + 1], max(free, endOf(w, list[i], begun))
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
  for k = 1, #windows do
    local w = windows[k]
    local list, t = lists[w.id], ceil(at / w.grain) * w.grain
    if w.from > 0 and at < w.to then t = min(t, w.to - 1) end
    if not list then
      list = {}
      lists[w.id] = list
    end
    local i = #list - 1
    while i > 0 and list[i] > t do i = i - 2 end
    if i > 0 and (list[i] == t or units < 0) then
      list[i + 1] = list[i + 1] + units
      if list[i + 1] <= 0 then table.remove(list, i); table.remove(list, i) end
    elseif units > 0 then
      table.insert(list, max(i, -1) + 2, t)
      table.insert(list, max(i, -1) + 3, units)
    end
  end
end

local function check(lists)
  for _, list in pairs(lists) do
    for i = 1, #list do local _ = list[i] + 0 end
  end
end

local function read(v)
  local empty, held, line, idle, sent, turns = cmsgpack.unpack(v)
  check(sent)
  check(turns)
  return {empty = empty + 0, held = held + 0, line = line + 0, idle = idle + 0, sent = sent, turns = turns}
end

-- A value that is none of these counts as none.
local function load(hash, field)
  local found, v = pcall(call, 'HGET', hash, field)
  local foreign = not found and string.find(type(v) == 'table' and v.err or v, 'WRONGTYPE', 1, true)
  if not found and not foreign then error(v, 0) end
  local ok, s
  if v then ok, s = pcall(read, v) end
  if not ok then s = {empty = 0, held = 0, line = 0, idle = 0, sent = {}, turns = {}} end
  s.new, s.late, s.foreign = not v, 0, foreign
  return s
end

-- Drops the fields of a hash that are empty.
local function sweep(hash)
  local all = call('HGETALL', hash)
  for i = 2, #all, 2 do
    local ok, _, empty = pcall(cmsgpack.unpack_one, all[i])
    if not ok or empty * 1000 <= now then call('HDEL', hash, all[i - 1]) end
  end
end

-- Drops lists without units, and returns when the last of their units leaves its window.
local function lastOf(lists, windows, last)
  for id, list in pairs(lists) do
    local w, t = windows.ids[id], list[#list - 1]
    -- windows that were taken away are kept until their units have left
    if not t or not w and t + 2 * math.abs(id) <= now then
      lists[id] = nil
    elseif w then
      last = max(last, endOf(w, t, t))
    end
  end
  return last
end

local function save(hash, field, s, windows)
  local last = lastOf(s.sent, windows, s.held)
  if s.line > 0 then last = max(last, min(lastOf(s.turns, windows, s.line), s.line + MINUTE)) else s.turns = {} end
  if last <= now then return call('HDEL', hash, field) end
  local longer = ceil(last / 1000) > s.empty
  if longer then s.empty = ceil((last + (last - now) / 16) / 1000) end -- somewhat later: the next units do not have to prolong it
  call('HSET', hash, field, cmsgpack.pack(s.empty, s.held, s.line, s.idle, s.sent, s.turns))
  local lives = 1000 * s.empty - now
  if longer and call('PTTL', hash) < lives then call('PEXPIRE', hash, lives) end
  if s.new and now % 8 == 0 then sweep(hash) end
end

-- What has changed is written when all checks have been answered: if one fails, none has counted.
local states, answers, written = {}, {}, {}
for i = 1, #KEYS - 2 do
  local hash, field, most, from = KEYS[i], ARGV[4 * i - 3], tonumber(ARGV[4 * i - 1]), now + tonumber(ARGV[4 * i])
  local windows, changed = parse(ARGV[4 * i - 2]), true
  local what, units, turned, s = windows.what, windows.units, windows.turned, states[field] or load(hash, field)
  states[field], moved, left = s, false, 0
  local free = max(look(s.sent, windows, units, now, now), s.held, from)
  if s.line > now then s.idle = max(s.idle, left) end
  -- Nobody comes to the turns of a line if the key has been free for longer than from one turn to the next: their campaign is paused, or their daemon
  -- was lost.
  local deserted = s.line > now and free <= now and max(s.held, s.idle) <= now - windows.gap - LATE
  if deserted or s.line + MINUTE <= now or s.line > now + HOUR + windows.gap * units then s.turns, s.line, s.idle = {}, 0, 0 end
  if what == 'show' then
    answers[i], changed = {max(0, s.line - now), max(0, s.held - now), free - now}, false
    for _, w in ipairs(windows) do table.insert(answers[i], w.used) end
  elseif what == 'hold' then
    s.held, s.line, answers[i] = most > 0 and max(s.held, now + most) or 0, most > 0 and s.line or 0, 0
  elseif what == 'back' then
    add(s.sent, windows, -units, most)
    add(s.turns, windows, -units, most)
    answers[i] = 0
  elseif what == 'leave' then
    if s.line <= now + most + windows.gap * units then -- it is the last one; others follow those before
      add(s.turns, windows, -units, now + most)
      s.line = min(s.line, now + most)
    end
    answers[i] = 0
  elseif again then
    answers[i], changed = 0, false
  elseif what == 'take' and free <= now and (turned or s.line == 0) then
    add(s.sent, windows, units, after)
    answers[i], s.idle = -after, s.line > 0 and after or 0
  elseif most == 0 then
    answers[i], changed = free > now and CAPPED - (free - now) or 0, false
  elseif what == 'take' and turned then -- those before were late; those that come with it go one after the other
    local wait = free + s.late - now
    answers[i], changed, s.late = wait > max(most, windows.gap + 1) and CAPPED - wait or min(wait, HOUR), false, s.late + windows.gap * units
  else
    if s.line == 0 then
      s.idle = free
      for id, list in pairs(s.sent) do s.turns[id] = {unpack(list)} end
    end
    local turn = look(s.turns, windows, units, max(free, s.line), now + HOUR)
    if what == 'take' and turn <= now then
      add(s.sent, windows, units, after)
      add(s.turns, windows, units, after)
      answers[i], s.line, s.idle = -after, now, after
    elseif turn - now > most then
      answers[i], changed = CAPPED - (turn - now), false
    elseif turn - now > HOUR then
      answers[i], changed = HOUR, false
    else
      add(s.turns, windows, units, turn)
      answers[i], s.line = turn - now, turn + (turn > now and windows.gap * units or 0)
      changed = turn > now or look(s.turns, windows, 1, now, now + HOUR) > now -- else the next one may go as well
    end
  end
  if s.foreign then
    answers[i] = FOREIGN
  elseif changed or moved then
    written[field], s.hash, s.windows = s, hash, windows
  end
end
for field, s in pairs(written) do save(s.hash, field, s, s.windows) end
if batch ~= 0 then call('SET', KEYS[#KEYS], cmsgpack.pack({math.abs(batch), answers}), 'PX', HOUR) end
return answers
