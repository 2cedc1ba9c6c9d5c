-- The keys of the locks; the keys behind them are the counters.
local count = tonumber(ARGV[3])
