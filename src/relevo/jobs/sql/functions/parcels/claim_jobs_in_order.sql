-- Claims waiting parcels and rows together, in their common order.
create or replace function relevo.claim_jobs_in_order(
  p_host uuid, p_name text, p_claim bigint, lanes text[], rooms integer[], handler_lanes text[], handlers text[], slots integer[],
  singly boolean)
returns setof relevo.job_notice language plpgsql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp as $$
declare
  wanted integer[] := rooms;
  before integer[];
  parcels bigint[];
  next_ranks bigint[];
  next_sequences bigint[];
  p record;
  claimed relevo.job_notice;
  rows boolean := false;
  rows_first boolean := true;
  suspected boolean := false;  -- a host was lost with one of them
begin
  for turn in 1 .. 10 loop
    before := rooms;
    parcels := '{}';
    for n in 1 .. cardinality(lanes) loop
      select * into p from relevo.choose_parcels(lanes[n], rooms[n], wanted[n], array(
        select h.handler from unnest(handler_lanes, handlers) as h (lane, handler) where h.lane = lanes[n]), singly, rows_first);
      parcels := parcels || p.chosen;
      rooms[n] := p.room;
      next_ranks[n] := p.next_rank;
      next_sequences[n] := p.next_sequence;
    end loop;
    if cardinality(parcels) > 0 then
      update relevo.job_parcel q set host = p_host, claim = p_claim, host_name = p_name, taken_at = relevo.now()
      where q.number = any (parcels);
      return query
      select 'parcel', null::uuid, null::smallint, p_claim, q.lane, q.handler, q.name, null::text, 1, q.operation_type,
        date_part('epoch', q.created_at), null::text, q.ids, q.datas
      from relevo.job_parcel q where q.number = any (parcels) order by q.rank, q.sequence;
    end if;
    exit when not exists (select from unnest(rooms) as r where r > 0);
    for claimed in
      select * from relevo.claim_job_rows(
        p_host, p_name, p_claim, lanes, rooms, handler_lanes, handlers, slots, singly, next_ranks, next_sequences,
        turn + cardinality(parcels))
    loop
      return next claimed;
      rows := true;
      suspected := suspected or coalesce((claimed.particulars::jsonb ->> 'crashes')::integer > 0, false);
      rooms[array_position(lanes, claimed.lane)] := rooms[array_position(lanes, claimed.lane)] - 1;
    end loop;
    exit when suspected;
    if rooms = before then  -- perhaps others have locked the rows that come first
      exit when not rows_first or not exists (select from unnest(next_ranks) as r where r is not null);
      rows_first := false;
    end if;
  end loop;
  if rows then perform relevo.after_job_claims(p_host, p_claim); end if;
end $$;
