-- Stores consumers as a host defines them, and that it serves them. While another host serves them, what all have to agree on
-- (`p_shared`: keys of the definition) cannot change: the answer names what differs, and nothing is stored.
create or replace function relevo.declare_consumers(
  p_host uuid, p_name text, p_definition jsonb, p_shared text[], p_sources integer[], p_slots integer, out id integer, out differs text)
language plpgsql volatile set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  stored relevo.message_consumers;
begin
  insert into relevo.message_consumers (name, definition, sources) values (p_name, p_definition, p_sources) on conflict (name) do nothing;
  select * into stored from relevo.message_consumers c where c.name = p_name for update;
  delete from relevo.message_replica r where r.consumers = stored.id
    and not exists (select from relevo.host h where h.incarnation = r.host and h.ended_at is null);
  select string_agg(k, ', ' order by k) into differs from unnest(p_shared) as k where stored.definition -> k is distinct from p_definition -> k;
  if differs is not null and exists (select from relevo.message_replica r where r.consumers = stored.id and r.host <> p_host) then return; end if;
  differs := null;
  id := stored.id;
  update relevo.message_consumers c set definition = p_definition, sources = p_sources, served_at = relevo.now(),
    updated_at = case when c.definition = p_definition then c.updated_at else relevo.now() end,
    passed = case when c.sources = p_sources then c.passed else '{}' end, vtimes = case when c.sources = p_sources then c.vtimes else '{}' end
  where c.id = stored.id;
  insert into relevo.message_replica (consumers, host, slots) values (stored.id, p_host, p_slots)
  on conflict (consumers, host) do update set slots = excluded.slots;
end $$;
