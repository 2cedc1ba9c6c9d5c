-- A release with min_hold, which does not wait for the disk either. $1 name, $2 token, $3 microseconds
update {table} set expires = least(expires, clock_timestamp() + $3::bigint * interval '1 microsecond')
where name = $1 and token = $2 and expires > clock_timestamp()
returning number, null::bigint as rest, set_config('synchronous_commit', 'off', true)
