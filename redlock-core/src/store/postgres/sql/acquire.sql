-- $1 name, $2 token, $3 microseconds, $4 label, $5 seconds since 1970; the last two are null without a label. The first
-- condition keeps a refusal from locking the row, and from waiting for the disk. Only the second one is safe: the server checks
-- it again on the latest version of the row. A caller that has lost a race there gets no row, because the outer query sees the
-- former version.
with granted as (
  insert into {table} as l (name, token, expires, number, label, since)
  select $1, $2, clock_timestamp() + $3::bigint * interval '1 microsecond',
    (extract(epoch from clock_timestamp()) * 1000000)::bigint, $4, to_timestamp($5::bigint)
  where not exists (select from {table} h
    where h.name = $1 and h.token not in ('', $2) and h.expires > clock_timestamp())
  on conflict (name) do update set token = excluded.token, number = greatest(l.number + 1, excluded.number),
    expires = clock_timestamp() + $3::bigint * interval '1 microsecond', label = excluded.label, since = excluded.since
  where l.token in ('', $2) or l.expires <= clock_timestamp()
  returning number)
select number, null::bigint as rest, null::text as holder, null::text as label,
  (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint # pg_backend_pid()::bigint as session
from granted union all
select null, (extract(epoch from h.expires - clock_timestamp()) * 1000000)::bigint, left(h.token, 16), h.label, null
from {table} h where h.name = $1 and h.token not in ('', $2) and h.expires > clock_timestamp()
  and not exists (select from granted)
