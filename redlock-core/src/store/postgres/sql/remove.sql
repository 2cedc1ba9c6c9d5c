-- $1 name, $2 the id of the holder. The time stays, because it is the rest of the lease. Unlike a release, it waits for the disk:
-- the lock would be back after a crash of the server, although an operator was told that it is gone.
update {table} set token = '', label = null, since = null
where name = $1 and left(token, 16) = $2 and expires > clock_timestamp()
returning number, (extract(epoch from expires - clock_timestamp()) * 1000000)::bigint as rest
