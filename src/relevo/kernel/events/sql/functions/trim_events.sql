-- Declares partitions that are older than the log is kept as trimmed: positions in them are refused
-- from the commit of this on. Answers how many.
create or replace function relevo.trim_events() returns integer language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
  edge timestamptz;
  trimmed integer;
begin
  update relevo.event_partition p set trimmed_at = relevo.now()
  where p.trimmed_at is null and p.high <= relevo.now() - (select l.kept from relevo.event_log l);
  get diagnostics trimmed = row_count;
  if trimmed = 0 then return 0; end if;
  select max(p.high) into edge from relevo.event_partition p where p.trimmed_at is not null;
  update relevo.event_log l set trimmed_before = greatest(l.trimmed_before, edge);
  update relevo.event_stripe s set trimmed_lsn = gone.lsn
  from (select i.id, (select max(b.last) from relevo.event_batch b where b.stripe = i.id and b.at < edge) as lsn
        from relevo.event_stripe i) as gone
  where gone.id = s.id and gone.lsn > s.trimmed_lsn;
  delete from relevo.event_time t where t.at < edge;
  return trimmed;
end $$;
