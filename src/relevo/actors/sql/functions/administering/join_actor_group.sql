-- Makes a placement group with so many slots if it is missing and all groups together then have at most so many. Returns the
-- slots that it has, or null, and those of all groups. Groups are made one after the other.
create or replace function relevo.join_actor_group(p_name text, p_slots integer, p_most integer, out slots integer, out total bigint)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  select g.slots into slots from relevo.actor_group g where g.name = p_name;
  if not found then
    lock table relevo.actor_group in share row exclusive mode;
    insert into relevo.actor_group (name, slots)
    select p_name, p_slots where p_slots + (select coalesce(sum(g.slots), 0) from relevo.actor_group g) <= p_most
    on conflict (name) do nothing;
    select g.slots into slots from relevo.actor_group g where g.name = p_name;
  end if;
  total := (select coalesce(sum(g.slots), 0) from relevo.actor_group g);
end $$;
