create table if not exists {table} (
  name text collate "C" primary key,
  token text not null,
  expires timestamptz not null,
  number bigint not null,
  label text,
  since timestamptz
) with (fillfactor = 50);
