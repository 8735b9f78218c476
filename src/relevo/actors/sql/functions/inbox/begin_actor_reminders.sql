-- Notes that occurrences of reminders begin, as `relevo.begin_actor_messages` does of messages.
create or replace function relevo.begin_actor_reminders(
  p_leases integer[], p_epochs bigint[], p_actors text[], p_names text[], p_dues timestamptz[], p_most integer, p_error text)
returns table (actor text, name text, is_dead boolean) language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
  stale integer[] := array(select stale_id from relevo.stale_fences(p_leases, p_epochs));
begin
  return query
  with begun as (
    select g.epoch, r.actor, r.name,
           coalesce(r.crashes, 0) + coalesce((r.begun_epoch < l.in_order_from)::integer, 0) as crashes
    from unnest(p_leases, p_epochs, p_actors, p_names, p_dues) as g (lease, epoch, actor, name, due)
    join relevo.lease l on l.id = g.lease
    join relevo.actor_reminder r on r.actor = g.actor and r.name = g.name and r.due = g.due and r.dead_at is null
    where g.lease <> all (stale)
    order by r.actor, r.name for update of r
  )
  update relevo.actor_reminder r set
    crashes = b.crashes, begun_epoch = b.epoch,
    dead_at = case when b.crashes >= p_most then relevo.now() end, error = case when b.crashes >= p_most then p_error else r.error end
  from begun b where r.actor = b.actor and r.name = b.name
  returning r.actor, r.name, r.dead_at is not null;
end $$;
