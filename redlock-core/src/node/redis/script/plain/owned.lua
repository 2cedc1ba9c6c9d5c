if value ~= ARGV[1] then return 0 end
