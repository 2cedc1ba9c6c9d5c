select (extract(epoch from clock_timestamp()) * 1000000)::bigint as number, null::bigint as rest
