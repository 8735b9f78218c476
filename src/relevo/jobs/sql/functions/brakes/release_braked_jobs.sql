-- Releases jobs of brakes that are off, and updates the end of the pause of the others; returns how many it changed.
create or replace function relevo.release_braked_jobs(amount integer) returns integer
language sql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
  with held as (
    select j.id, b.until from relevo.job j left join relevo.job_brake b on b.extension = j.extension
    where j.status = 10 and j.waiting_event and j.error_code = -2147088105
      and (b.extension is null or j.postpone_until < b.until)
    limit amount for update of j skip locked
  ), touched as (
    update relevo.job j set waiting_event = held.until is not null,
      postpone_until = coalesce(held.until, least(j.postpone_until, relevo.now())),
      version = j.version + 1, modified_at = relevo.now()
    from held where j.id = held.id
    returning 1
  )
  select count(*)::integer from touched;
$$;
