for index = 1, count do
  local set = redis.pcall('SET', KEYS[index], ARGV[1], 'PX', ARGV[2])
  if set.err then
    -- Redis keeps the writes of a script that fails, but nothing may be half set.
    for before = 1, index - 1 do redis.pcall('DEL', KEYS[before]) end
    return set
  end
end
