-- Locks the rows that a set of commands may change, in the order of every path: resources (shared), workers,
-- jobs. The jobs named, those of the offers named, and those that the workers in `whole` are offered;
-- the workers named, and those who hold an offer or an assignment of a job named.
create or replace function relevo.lock_router(
  worker_ids text[], job_ids text[], offer_ids uuid[], whole text[],
  out workers text[], out jobs text[], out at timestamptz, out arrival bigint, out revision bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
  named text[];      -- jobs whose every offer may change
  late text[];
  locked bigint;
begin
  perform relevo.stay_awake();
  perform pg_advisory_xact_lock_shared(1380273159, 0);
  named := array(
    select unnest(job_ids) union
    select o.job_id from relevo.router_offer o where o.id = any (offer_ids));
  jobs := array(
    select unnest(named) union
    select o.job_id from relevo.router_offer o where o.worker_id = any (whole) and o.ended_at is null and o.state = 'open');
  workers := array(
    select unnest(worker_ids) union select unnest(whole) union
    select o.worker_id from relevo.router_offer o where o.job_id = any (named) and o.ended_at is null);
  perform 1 from relevo.router_load l where l.worker_id = any (workers) order by l.worker_id for update;
  perform 1 from relevo.router_job j where j.id = any (jobs) order by j.id for update;
  -- Offers may have come between the reading and the locks. Whoever is concerned is out of order by
  -- now, so it is locked only if nobody else has it; if somebody has, all begins again.
  late := array(
    select distinct o.worker_id from relevo.router_offer o
    where o.job_id = any (named) and o.ended_at is null and o.worker_id <> all (workers));
  if late <> '{}' then
    perform 1 from relevo.router_load l where l.worker_id = any (late) for update skip locked;
    get diagnostics locked = row_count;
    workers := workers || late;
  end if;
  if late = '{}' or locked = cardinality(late) then
    late := array(
      select distinct o.job_id from relevo.router_offer o
      where o.worker_id = any (whole) and o.ended_at is null and o.state = 'open' and o.job_id <> all (jobs));
    locked := 0;
    if late <> '{}' then
      perform 1 from relevo.router_job j where j.id = any (late) for update skip locked;
      get diagnostics locked = row_count;
      jobs := jobs || late;
    end if;
  end if;
  if locked < cardinality(late) then
    raise exception 'offers were issued meanwhile' using errcode = 'serialization_failure';
  end if;
  at := relevo.now_after_waiting();
  arrival := nextval('relevo.router_arrival');
  select r.revision into revision from relevo.router_revision r;
end $$;
