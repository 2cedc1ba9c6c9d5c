-- $1 name, $2 token. The row stays, so that its number grows, and its time stays, so that the clean-up is late. A crash of
-- the server may undo the release, which only keeps the lock for longer.
update {table} set token = '', expires = clock_timestamp(), label = null, since = null
where name = $1 and token = $2 and expires > clock_timestamp()
returning number, null::bigint as rest, set_config('synchronous_commit', 'off', true)
