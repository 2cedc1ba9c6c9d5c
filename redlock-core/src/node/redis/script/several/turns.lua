for index, key in ipairs(owned) do give_turn(key, notified[index]) end
