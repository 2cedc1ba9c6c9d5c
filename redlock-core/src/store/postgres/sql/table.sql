create table if not exists {table} (
  name text collate "C" primary key,
  token text not null,
  expires timestamptz not null,
  number bigint not null
) with (fillfactor = 50);
