select (extract(epoch from clock_timestamp()) * 1000000)::bigint as number, null::bigint as rest,
  (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint # pg_backend_pid()::bigint as session
