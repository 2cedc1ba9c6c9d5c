-- What a node asks a server before its first use. The last checkpoint has the timeline of its time: if that is the present
-- timeline, the promotion was before the checkpoint.
select pg_is_in_recovery() as is_replica,
  current_setting('server_version') as version,
  (extract(epoch from clock_timestamp()) * 1000000)::bigint as clock,
  current_setting('server_encoding') as server_encoding,
  current_setting('fsync') as fsync,
  current_setting('full_page_writes') as full_page_writes,
  current_setting('synchronous_commit') as synchronous_commit,
  current_setting('default_transaction_isolation') as default_transaction_isolation,
  current_setting('default_transaction_read_only') as default_transaction_read_only,
  current_setting('lock_timeout') as lock_timeout,
  current_setting('client_min_messages') as client_min_messages,
  current_database() as database,
  has_schema_privilege(n.oid, 'usage') as may_use,
  c.oid is not null as has_table,
  -- The name of each column with its type, and with its collation if that matters.
  (select array_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod) || case attname
      when 'name' then coalesce((select ' collate ' || quote_ident(collname) from pg_collation where oid = attcollation), '')
      else '' end)
    from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped) as columns,
  -- A column that needs a value, which a lock does not have, or not always.
  (select quote_ident(attname) from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped
      and attname not in ('name', 'token', 'expires', 'number')
      and attnotnull and (attname in ('label', 'since') or not atthasdef and attidentity = '') limit 1) as needy,
  c.relpersistence = 'p' as is_logged,
  exists (select from pg_index join pg_attribute on attrelid = indrelid and attnum = indkey[0]
    where indrelid = c.oid and indisunique and indisvalid and indimmediate and indpred is null and indnkeyatts = 1
      and attname = 'name') as is_unique,
  (select string_agg(p, ', ') from unnest('{select,insert,update,delete}'::text[]) p
    where not has_table_privilege(c.oid, p)) as missing,
  (select system_identifier from pg_control_system()) as system,
  timeline,
  -- The time of a checkpoint is cut to seconds.
  (select (extract(epoch from clock_timestamp() - checkpoint_time - interval '1 second') * 1000000)::bigint
    from pg_control_checkpoint() where timeline_id = wanted.timeline) as promoted_ago,
  -- The recovery after the death of a process keeps the start, and resets the statistics.
  (extract(epoch from clock_timestamp() - greatest(pg_postmaster_start_time(),
    (select stats_reset from pg_stat_bgwriter))) * 1000000)::bigint as uptime,
  pg_backend_pid() as pid,
  (extract(epoch from backend_start) * 1000000)::bigint as backend_start,
  usesysid as role,
  -- The process and the start of its server: no other session has this number.
  (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint # pg_backend_pid()::bigint as session
from pg_stat_activity, (select $1::text as schema, case when pg_is_in_recovery() then 0
    else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int end as timeline) as wanted
  left join pg_namespace n on n.nspname = schema
  left join pg_class c on c.relnamespace = n.oid and c.relname = 'redlock_lease' and c.relkind in ('r', 'p')
where pid = pg_backend_pid()
