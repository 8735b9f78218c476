-- The share of a table's pages, in percent, that hold at most so many pages: how much of it a count reads. The table is
-- named by the type of its rows, as `pg_typeof(null::relevo.job)`.
create or replace function relevo.sample_percent(of regtype, pages integer) returns float8 language sql stable
return least(100, 100.0 * pages * current_setting('block_size')::integer
  / greatest(1, pg_relation_size((select t.typrelid from pg_type t where t.oid = of))));
