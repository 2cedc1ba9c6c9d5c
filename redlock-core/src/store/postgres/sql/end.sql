-- Ends a process of the server, except one that a pooler uses for another application by now. $1 its number, $2 its start in
-- microseconds, which is hidden from a role without the rights of the role of the process, $3 this role. A pooler may append
-- the address of its client to the name of the application.
select pg_terminate_backend(pid) from pg_stat_activity
where pid = $1 and usesysid = $3 and coalesce((extract(epoch from backend_start) * 1000000)::bigint = $2, true)
  and pid <> pg_backend_pid() and starts_with(application_name, 'redlock')
