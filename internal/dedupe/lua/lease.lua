-- Executes a batch of leases, marks, releases, looks and cancellations, in order.
--
-- A job's value is '1' once it was delivered and '0' once it was cancelled (small integers, for which Redis keeps no memory
-- of their own), and the token of the lease while a node may be sending it. A token begins with eight random bytes.
--
-- KEYS  the job of each entry
-- ARGV  1 the node that asks, with which its tokens begin
--       then per entry: what (lease, mark, release, look or cancel), the token, milliseconds that the value is kept
-- Returns per entry
--   lease    0 it is the node's; -1 the job was delivered; -2 it is cancelled; else for how many milliseconds another node has it
--   look     the same, but 0 nothing is known of it
--   cancel   the same, but -2 also if it is cancelled by this entry
--   mark     0, also if another node had leased the job
--   release  0, and the lease is gone if it was still this one

local call = redis.call
local node, answers = ARGV[1], {}

local function look(key)
  local is = call('GET', key)
  if not is then return 0 end
  if is == '1' then return -1 end
  if is == '0' then return -2 end
  return math.max(1, call('PTTL', key))
end

local function cancel(key, ms)
  if call('SET', key, '0', 'NX', 'PX', ms) then return -2 end
  return look(key)
end

-- A node never has two leases on one job at a time. So a lease of its own found there is one whose answer it did not
-- get.
local function lease(key, token, ms)
  if call('SET', key, token, 'NX', 'PX', ms) then return 0 end
  if string.sub(call('GET', key), 1, #node) ~= node then return look(key) end
  call('SET', key, token, 'PX', ms)
  return 0
end

for i, key in ipairs(KEYS) do
  local what, token, ms = ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
  local answer = 0
  if what == 'lease' then
    answer = lease(key, token, ms)
  elseif what == 'look' then
    answer = look(key)
  elseif what == 'cancel' then
    answer = cancel(key, ms)
  elseif what == 'mark' then
    call('SET', key, '1', 'PX', ms)
  elseif call('GET', key) == token then
    call('DEL', key)
  end
  answers[i] = answer
end
return answers
