-- Stores messages to actors from outside of actors, also in a transaction of the caller; returns their numbers.
create or replace function relevo.send_actor_messages(
  p_receivers text[], p_groups text[], p_slots integer[], p_methods text[], p_bodies bytea[], p_digests text[], p_headers text[],
  p_attempts integer[], p_on_dead text[])
returns bigint[] language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  lost record;
  numbers bigint[];
begin
  select s.placement_group, s.slot into lost from unnest(p_groups, p_slots) as s (placement_group, slot)
  left join relevo.actor_group g on g.name = s.placement_group
  where g.slots is null or s.slot not between 0 and g.slots - 1 limit 1;
  if found then
    raise exception 'there is no slot % of a placement group %', lost.slot, lost.placement_group using errcode = 'RV020';
  end if;
  with sent as (
    insert into relevo.actor_message (placement_group, slot, receiver, sender, method, body, digest, headers, attempts, on_dead)
    select g.placement_group, g.slot, g.receiver, '', g.method, g.body, g.digest, g.headers, g.attempts, g.on_dead
    from unnest(p_receivers, p_groups, p_slots, p_methods, p_bodies, p_digests, p_headers, p_attempts, p_on_dead) with ordinality
      as g (receiver, placement_group, slot, method, body, digest, headers, attempts, on_dead, place)
    order by g.place
    returning number
  )
  select array_agg(s.number order by s.number) into numbers from sent s;
  return numbers;
end $$;
