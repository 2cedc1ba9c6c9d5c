-- $1 channels. Not together with a release: until its commit, a notification holds a lock of all databases of the server.
select null::bigint as number, null::bigint as rest, set_config('synchronous_commit', 'off', true), pg_notify(channel, '')
from unnest($1::text[]) as channel
