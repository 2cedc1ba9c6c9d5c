-- Ends a process of the server. $1 its number, $2 its start in microseconds. On another server there is no such process.
select pg_terminate_backend(pid) from pg_stat_activity
where pid = $1 and (extract(epoch from backend_start) * 1000000)::bigint = $2
