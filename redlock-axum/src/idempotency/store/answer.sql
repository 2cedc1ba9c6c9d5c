create schema if not exists {schema};
create table if not exists {schema}.redlock_answer (
  scope text collate "C" not null,
  key text collate "C" not null,
  number bigint not null,
  fingerprint bytea not null,
  answer bytea,
  expires timestamptz not null,
  primary key (scope, key)
);
create index if not exists redlock_answer_expires on {schema}.redlock_answer (expires);
-- The rights of a role that does not own the table:
-- grant usage on schema {schema} to ROLE;
-- grant select, insert, update, delete on {schema}.redlock_answer to ROLE;
