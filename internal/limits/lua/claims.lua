-- Reports for which campaigns that a quota has refused some of its units are kept, and changes nothing. Units are also kept for those that
-- only another quota makes wait: these have been refused nothing here.
--
-- KEYS  1 clock, 2 quota
-- ARGV  1 header
-- Returns head, the number of claims, and per claim the campaign, when it asked last, when it is to ask again, and units.

local now, refused = clock(KEYS[1], false)
if not now then return refused end
local q, list = loadQuota(KEYS[2], call('GET', KEYS[2])), {}
for i = 1, #q.rivals do
  local r = q.rivals[i]
  local several = sub(r[ID], 1, 1) == ' ' -- those that wait on a daemon
  if r[DEMAND] > 0 and (several or r[RCUT] == r[DUE]) then
    list[#list + 1] = pack('<I2c0I7I7I4', #r[ID], r[ID], r[SEEN], r[DUE], r[DEMAND])
  end
end
return head(now) .. pack('<I2', #list) .. table.concat(list)
