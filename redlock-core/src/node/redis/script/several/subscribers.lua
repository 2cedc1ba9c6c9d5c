if result ~= 1 then return result end
return 1 + most
