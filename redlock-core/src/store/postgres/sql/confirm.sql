-- $1 name, $2 token, $3 number
update {table} set number = greatest(number, $3)
where name = $1 and token = $2 and expires > clock_timestamp()
returning number, null::bigint as rest
