-- The third argument is the number of permits, or 0 for a reader.
if value then return redis.call('PTTL', KEYS[1]) end
local permits = tonumber(ARGV[3])
local own = (permits > 0 and 'p:' or 'r:') .. ARGV[1]
local till = ends[own] or 0
if till < now then
  local _, mark = living('w')
  local _, turn = living('t')
  if mark > 0 and turn == 0 then return mark - now end
  -- Readers and holders of permits exclude each other.
  local _, others = living(permits > 0 and 'r' or 'p')
  if others > 0 then return others - now end
  if permits > 0 then
    local taken = {}
    for field, other in pairs(ends) do
      if other >= now and string.sub(field, 1, 1) == 'p' then table.insert(taken, other) end
    end
    if #taken >= permits then
      table.sort(taken)
      return taken[#taken - permits + 1] - now
    end
  end
end
