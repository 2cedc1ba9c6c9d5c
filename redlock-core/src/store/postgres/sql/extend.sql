-- $1 name, $2 token, $3 microseconds
update {table} set expires = greatest(expires, clock_timestamp() + $3::bigint * interval '1 microsecond')
where name = $1 and token = $2 and expires > clock_timestamp()
returning number, null::bigint as rest
