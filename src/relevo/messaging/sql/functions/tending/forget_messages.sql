-- Forgets what is over, up to `p_limit` rows of each kind: remembered ids and settlements, tenants without messages for five minutes
-- that have no advance over others who wait, sessions without messages, holder and state. Returns how many rows of the kind that
-- has most: as many as `p_limit` say that there may be more.
create or replace function relevo.forget_messages(p_limit integer default 5000) returns integer language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  removed integer;
  most integer := 0;
begin
  delete from relevo.message_seen s using (
    select o.entity_id, o.message_id from relevo.message_seen o where o.until <= relevo.now()
    order by o.until limit p_limit for update skip locked) o
  where s.entity_id = o.entity_id and s.message_id = o.message_id;
  get diagnostics removed = row_count; most := greatest(most, removed);
  delete from relevo.message_settled s where s.at <= relevo.now() - interval '60 seconds';
  with gone as (
    delete from relevo.message_fairness f using (
      select o.entity_id, o.class, o.key from relevo.message_fairness o where o.used_at <= relevo.now() - interval '5 minutes'
        and (o.last_tag + 1000000 <= coalesce((
            select t.tags[array_position(t.numbers, o.class)] from relevo.message_tally t where t.entity_id = o.entity_id), 0)
          or not exists (select from relevo.message m
            where m.entity_id = o.entity_id and m.sub_queue = 0 and m.class = o.class and m.state = 0))
      order by o.used_at limit p_limit for update skip locked) o
    where f.entity_id = o.entity_id and f.class = o.class and f.key = o.key
    returning f.entity_id, f.class
  ), counted as (
    insert into relevo.message_delta (entity_id, sub_queue, class, fairness_keys)
    select g.entity_id, 0, g.class, -count(*) from gone g group by g.entity_id, g.class
  )
  select count(*) into removed from gone;
  most := greatest(most, removed);
  delete from relevo.message_session s using (
    select o.id from relevo.message_session o where not o.held and o.state is null and o.updated_at <= relevo.now() - interval '1 minute'
      and not exists (select from relevo.message m where m.session = o.id)
      and pg_try_advisory_xact_lock(1380273170, hashtext(o.entity_id || ' ' || o.key))
    order by o.updated_at limit p_limit for update skip locked) o
  where s.id = o.id and not exists (select from relevo.message m where m.session = s.id);
  get diagnostics removed = row_count;
  return greatest(most, removed);
end $$;
