-- If a row was deleted earlier, or while its number is ahead of this clock, the number could be given again. The day covers
-- numbers that other nodes have given, and clocks that are stepped back.
delete from {table} where name in (select name from {table}
  where expires < clock_timestamp() - interval '1 day'
    and number < (extract(epoch from clock_timestamp() - interval '1 day') * 1000000)::bigint
  limit 1000 for update skip locked)
returning number, null::bigint as rest, set_config('synchronous_commit', 'off', true)
