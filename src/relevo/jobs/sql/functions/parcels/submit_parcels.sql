-- Stores jobs of one handler that differ only in key and data as parcels. Returns false and stores nothing if they have
-- large data or repeat a key: then the caller stores rows.
create or replace function relevo.submit_parcels(
  p_ids uuid[], p_datas text[], p_lane text, p_handler text, p_name text, p_type integer, p_priority smallint, p_rank bigint,
  p_keeps boolean, p_at timestamptz)
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  if cardinality(p_datas) <> cardinality(p_ids)
     or exists (select from unnest(p_datas) as d (data) where octet_length(d.data) > 2000)
     or (select count(distinct i) from unnest(p_ids) as i) <> cardinality(p_ids) then
    return false;
  end if;
  insert into relevo.job_parcel (size, keeps, lanes, lane, handler, name, operation_type, priority, rank, created_at,
    sequence, ids, datas, sequences)
  select cardinality(c.ids), p_keeps, array[p_lane], p_lane, p_handler, p_name, p_type, p_priority, p_rank, p_at,
    c.sequences[1], c.ids, c.datas, c.sequences
  from (
    select p_ids[n : n + relevo.parcel_max() - 1] as ids, p_datas[n : n + relevo.parcel_max() - 1] as datas,
      array(select nextval('relevo.job_sequence') from generate_series(n, least(n + relevo.parcel_max() - 1, cardinality(p_ids)))) as sequences
    from generate_series(1, cardinality(p_ids), relevo.parcel_max()) as n order by n offset 0
  ) c;
  return true;
end $$;
