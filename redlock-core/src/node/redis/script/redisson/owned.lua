if owned ~= 1 then return 0 end
