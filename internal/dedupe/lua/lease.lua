-- Executes a batch of leases, marks and releases, in order.
--
-- A job's value is '1' once it was delivered (a small integer, for which Redis keeps no memory of its own), and the
-- token of the lease while a node may be sending it. No token is '1': it begins with eight random bytes.
--
-- KEYS  the job of each entry
-- ARGV  1 the node that asks, with which its tokens begin
--       then per entry: what (lease, mark or release), the token, milliseconds that the value is kept (release: unused)
-- Returns per entry
--   lease    0 it is the node's; -1 the job was delivered; else for how many milliseconds another node has it
--   mark 0, also if another node had leased the job release 0, and the lease is gone if it was still this one

local call = redis.call
local node, answers = ARGV[1], {}

-- A node never has two leases on one job at a time. So a lease of its own found there is one whose answer it did not
-- get.
local function lease(key, token, ms)
  if call('SET', key, token, 'NX', 'PX', ms) then return 0 end
  local is = call('GET', key)
  if is == '1' then return -1 end
  if string.sub(is, 1, #node) ~= node then return math.max(1, call('PTTL', key)) end
  call('SET', key, token, 'PX', ms)
  return 0
end

for i, key in ipairs(KEYS) do
  local what, token, ms = ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
  local answer = 0
  if what == 'lease' then
    answer = lease(key, token, ms)
  elseif what == 'mark' then
    call('SET', key, '1', 'PX', ms)
  elseif call('GET', key) == token then
    call('DEL', key)
  end
  answers[i] = answer
end
return answers
