-- Gates: until when each is closed, its mode, and since when it is closed for this cause. A gate is half-open when its time is over, until
-- it is opened. Its mode is one digit:
--   0  throttled: the destination asked to wait
--   1  failing
--   2  misconfigured
--   3  refused; of single destinations only
--   4  throttled, and a job was let through since

local MODE = {ASKED = '0', FAILING = '1', TRIED = '4'}
local CAUSE = {['0'] = 'throttled', ['1'] = 'failing', ['2'] = 'misconfigured', ['3'] = 'refused', ['4'] = 'throttled'}

local function gateText(at, mode, since) return string.format('%d %s %d', at, mode, since) end

-- The time until which a gate is closed, its mode and since when; nil where there is none, or only one from before the clock went back.
local function gateOf(v, now)
  if not v then return nil end
  local at, mode, since = match(v, '^(%d+) (%d) (%d+)')
  since = num(since)
  if since > now then return nil end
  return num(at), mode, since
end
