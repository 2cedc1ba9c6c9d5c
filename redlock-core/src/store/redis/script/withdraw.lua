-- mark
for _, key in ipairs(KEYS) do
  if read(key, 'x') == -4 then
    if redis.call('ZREM', key, 'w:' .. ARGV[1]) == 1 then
      if mark_end(key) == 0 then redis.pcall('PUBLISH', key, 'r') end
      expire(key)
    end
  end
end
return 1
