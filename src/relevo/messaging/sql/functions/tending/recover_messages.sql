-- Takes messages from hosts whose life has ended and from receivers whose lock has expired: such a delivery has failed. Returns
-- the entities that have them again.
create or replace function relevo.recover_messages(p_limit integer default 1000) returns integer[] language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  lost bigint[];
  entities integer[];
begin
  select array_agg(l.sequence order by l.sequence), array_agg(distinct l.entity_id) into lost, entities from (
    (select m.sequence, m.entity_id from relevo.message m
     where m.locked_until <= relevo.now() order by m.locked_until limit p_limit for update skip locked)
    union all
    (select m.sequence, m.entity_id from (
       select distinct h.host from relevo.message h where h.host is not null
         and not exists (select from relevo.host o where o.incarnation = h.host and o.ended_at is null)) g
     join relevo.message m on m.host = g.host limit p_limit for update of m skip locked)
  ) l;
  if lost is null then return '{}'; end if;
  perform relevo.move_messages(lost, array_fill('lose_lock'::text, array[cardinality(lost)]));
  return entities;
end $$;
