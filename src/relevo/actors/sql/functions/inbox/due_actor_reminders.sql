-- Reminders in some slots whose time has come and whose actor is not busy; the earliest of each slot first.
create or replace function relevo.due_actor_reminders(p_groups text[], p_slots integer[], p_busy text[], p_most integer)
returns table (actor text, name text, method text, due timestamptz, now timestamptz, schedule bytea, payload bytea, attempt integer,
               since timestamptz, crashes integer, begun_epoch bigint)
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
  t timestamptz := relevo.now();
begin
  return query
  select r.actor, r.name, r.method, r.due, t, r.schedule, r.payload, r.attempt,
         coalesce(r.retry_at, r.due), r.crashes, r.begun_epoch
  from unnest(p_groups, p_slots) as s (placement_group, slot) cross join lateral (
    select * from relevo.actor_reminder r
    where r.placement_group = s.placement_group and r.slot = s.slot and r.dead_at is null
      and coalesce(r.retry_at, r.due) <= t and r.actor <> all (p_busy)
    order by coalesce(r.retry_at, r.due) limit p_most) r
  limit p_most;
end $$;
