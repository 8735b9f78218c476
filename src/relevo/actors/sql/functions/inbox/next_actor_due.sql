-- When the next reminder, or message whose attempt has failed, of some slots becomes due; what is due already does not count.
create or replace function relevo.next_actor_due(p_groups text[], p_slots integer[]) returns timestamptz language plpgsql stable
set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
declare
  t timestamptz := relevo.now();
begin
  return (
    select min(least(r.at, m.due)) from unnest(p_groups, p_slots) as s (placement_group, slot)
    left join lateral (
      select coalesce(r.retry_at, r.due) as at from relevo.actor_reminder r
      where r.placement_group = s.placement_group and r.slot = s.slot and r.dead_at is null and coalesce(r.retry_at, r.due) > t
      order by coalesce(r.retry_at, r.due) limit 1) r on true
    left join lateral (
      select m.due from relevo.actor_message m
      where m.placement_group = s.placement_group and m.slot = s.slot and m.due > t and m.dead_at is null
      order by m.due limit 1) m on true);
end $$;
