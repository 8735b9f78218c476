-- Claims rows of jobs lane by lane: the first of every handler that the host serves, in whatever lane they are stored. Rows
-- of other lanes are moved first; the repeated claim then takes only rows of the host's lanes (`moved`). A claimed row of a
-- series inserts the next waiting one. The result has the order of the claims. If a host was lost with one of the rows, the
-- claim takes no more than can begin at once (`slots`, by lane): if one of them crashes hosts, it is soon found. Many plain
-- rows become a parcel, unless they are wanted `singly`. Rows from `next_ranks` and `next_sequences` on, by lane, come after
-- a waiting parcel. With a `turn` it is one of several statements of a claim, whose caller does the follow-ups.
create or replace function relevo.claim_job_rows(
  p_host uuid, p_name text, p_claim bigint, lanes text[], rooms integer[], handler_lanes text[], handlers text[], slots integer[],
  singly boolean, next_ranks bigint[] default '{}', next_sequences bigint[] default '{}', turn integer default 0,
  moved boolean default false)
returns setof relevo.job_notice language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off  -- always in the order of the index
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now();
  places tid[];
  recurs boolean;
  suspected boolean;
  plain boolean;  -- whether only a record and an event follow from the success of each
  own boolean;  -- whether any of them is a platform job
  strange boolean;  -- whether any of them is stored in another lane
  keeps boolean;
  taken relevo.job[];
begin
  with served as materialized (
    select h.lane, h.handler, l.room, l.next_rank, l.next_sequence, count(*) over (partition by h.lane) as siblings,
      b.extension is not null as braked, b.probe
    from unnest(lanes, rooms, next_ranks, next_sequences) as l (lane, room, next_rank, next_sequence)
    join unnest(handler_lanes, handlers) as h (lane, handler) on h.lane = l.lane
    left join relevo.job_brake b on h.handler = any (b.handlers)
    where l.room > 0
  ), wanted as materialized (
    select lane, handler, room as amount, braked, probe, next_rank, next_sequence from served where siblings = 1
    union all
    select lane, handler, count(*), braked, probe, next_rank, next_sequence from (
      select s.lane, s.handler, s.room, s.braked, s.probe, s.next_rank, s.next_sequence, row_number() over (partition by s.lane order by c.rank, c.sequence) as nth
      from served s cross join lateral (
        select j.rank, j.sequence from relevo.job j
        where j.handler = s.handler and (not moved or j.lane = s.lane) and j.status = 0 and not j.chained and not j.capped and not j.alone
          and (not s.braked or j.id = s.probe) and (s.next_rank is null or (j.rank, j.sequence) < (s.next_rank, s.next_sequence))
        order by j.rank, j.sequence limit s.room
      ) c where s.siblings > 1
    ) n where n.nth <= n.room group by lane, handler, braked, probe, next_rank, next_sequence
  )
  select array_agg(c.place order by c.rank, c.sequence), bool_or(c.recurs), bool_or(c.crashes > 0), bool_and(c.plain and not w.braked), bool_or(c.keeps), bool_or(c.system), bool_or(c.strange)
  into places, recurs, suspected, plain, keeps, own, strange
  from wanted w cross join lateral (
    select j.ctid as place, j.rank, j.sequence, j.series is not null as recurs, j.crashes, j.system, j.lane <> w.lane as strange, j.retain or not j.auto_delete as keeps,
      j.attempt = 0 and j.operation_type in (1, 54) and not j.system and pg_column_size(j.data) <= 2000
        and j.chain is null and j.series is null and j.details is null and j.batch is null as plain
    from relevo.job j
    where j.handler = w.handler and (not moved or j.lane = w.lane) and j.status = 0 and not j.chained and not j.capped and not j.alone
      and (not w.braked or j.id = w.probe) and (w.next_rank is null or (j.rank, j.sequence) < (w.next_rank, w.next_sequence))
    order by j.rank, j.sequence limit w.amount
    for update skip locked
  ) c;
  if strange then
    perform relevo.move_into_lanes(array_agg(j.ctid), array_agg(h.lane))
    from unnest(places) as p (place) join relevo.job j on j.ctid = p.place
    join unnest(handler_lanes, handlers) as h (lane, handler) on h.handler = j.handler where j.lane <> h.lane;
    return query select * from relevo.claim_job_rows(
      p_host, p_name, p_claim, lanes, rooms, handler_lanes, handlers, slots, singly, next_ranks, next_sequences, turn, true);
    return;
  end if;
  if suspected and turn > 1 then return; end if;
  if suspected then
    select array_agg(c.place order by c.nth) into places
    from (
      select p.place, j.lane, row_number() over (partition by j.lane order by p.nth) as nth
      from unnest(places) with ordinality as p (place, nth) join relevo.job j on j.ctid = p.place
    ) c join unnest(lanes, slots) as l (lane, slots) on l.lane = c.lane and c.nth <= coalesce(l.slots, c.nth);
  end if;
  if places is null then return; end if;
  if plain and not singly and cardinality(places) >= relevo.parcel_min() and not exists (
    select from relevo.job_lane l where l.name = any (lanes) and (l.told > 1 or l.owner_cap is not null)
  ) then
    taken := relevo.pack_jobs(p_host, p_name, p_claim, lanes, keeps, places);
    return query
    select 'claimed', j.id, null::smallint, p_claim, j.lane, j.handler, j.name, j.data, 1, j.operation_type,
      date_part('epoch', j.created_at),
      case when j.owner is null and j.token is null and j.regarding_id is null and j.regarding_type is null and j.depth = 1
             and j.correlation = j.id and j.postpone_until is null
           then null else relevo.job_particulars(j) end, null::uuid[], null::text[]
    from unnest(taken) as j;
    return;
  end if;
  return query
  update relevo.job j set
    status = 20, host = p_host, host_name = p_name, claim = p_claim, attempt = j.attempt + 1,
    started_at = coalesce(j.started_at, at), modified_at = at, version = j.version + 1,
    friendly = case when j.attempt = 0 then j.friendly end  -- the message of a former run does not belong to this one
  from unnest(places) as p (place) where j.ctid = p.place  -- in this order
  returning 'claimed', j.id, null::smallint, j.claim, j.lane, j.handler, j.name, j.data, j.attempt, j.operation_type,
    date_part('epoch', j.created_at),
    case when j.owner is null and j.chain is null and j.series is null and j.saved is null and j.details is null and j.token is null
           and j.regarding_id is null and j.regarding_type is null and j.retries = 0 and j.crashes = 0 and j.depth = 1 and j.batch is null and j.correlation = j.id
           and j.postpone_until is null
         then null else relevo.job_particulars(j) end, null::uuid[], null::text[];
  if turn = 0 and (recurs or own or exists (select from relevo.job_lane l where l.name = any (lanes) and l.events = 'all')) then
    perform relevo.after_job_claims(p_host, p_claim);
  end if;
end $$;
