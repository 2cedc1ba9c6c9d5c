-- $1 name, $2 token. Names the winner of a race that the caller has lost. With an empty token, names any holder.
select null::bigint as number, (extract(epoch from h.expires - clock_timestamp()) * 1000000)::bigint as rest,
  left(h.token, 16) as holder, h.label,
  case when isfinite(h.since) then extract(epoch from h.since)::bigint end as since
from {table} h
where h.name = $1 and h.token not in ('', $2) and h.expires > clock_timestamp()
