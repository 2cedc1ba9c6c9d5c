if #owned > 0 then redis.call('DEL', unpack(owned)) end
