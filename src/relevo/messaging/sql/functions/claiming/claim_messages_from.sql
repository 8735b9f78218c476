-- Claims the next messages of an entity or sub-queue, in their order: for a host (`p_host`, `p_claim`, `p_consumers`), whose locks last
-- as long as its life, or for a receiver, for the lock duration of the entity. With `p_first` only those are claimed, whatever their
-- place. Classes whose messages other claims hold at this moment leave their turn to the others.
create or replace function relevo.claim_messages_from(
  p_entity integer, p_sub_queue smallint, p_wanted integer, p_token bigint, p_host uuid, p_claim bigint, p_consumers integer,
  p_delete boolean, p_classes smallint[] default null, p_full_keys text[] default null, p_first bigint[] default null)
returns setof relevo.message_notice language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  entity relevo.message_entity;
  chosen record;
begin
  select * into entity from relevo.message_entity e
  where e.id = p_entity and e.status in ('active', 'send_disabled');
  if not found then return; end if;
  if entity.has_sessions and p_sub_queue = 0 then
    if p_host is not null then
      return query select * from relevo.claim_from_sessions(p_entity, p_wanted, p_token, p_host, p_claim, p_consumers);
    end if;
    return;
  end if;
  loop
    if p_first is null then
      select * into chosen from relevo.choose_messages(entity, p_sub_queue, p_wanted, p_classes, p_full_keys);
    else
      select array_agg(f.ctid order by f.sequence) as places, array_agg(f.fresh order by f.sequence) as fresh,
        null::smallint[] as floors, null::smallint[] as dry
      into chosen from (
        select m.ctid, m.sequence, not m.delivered as fresh from relevo.message m
        where m.sequence = any (p_first) and m.state = 0 and (m.expires_at is null or m.expires_at > at)
        order by m.sequence limit p_wanted for update of m skip locked) f;
    end if;
    if chosen.places is not null then
      return query select * from relevo.take_messages(
        entity, p_sub_queue, chosen.places, chosen.fresh, chosen.floors, 1::smallint, p_token, p_host, p_claim, p_consumers,
        case when p_host is null then at + make_interval(secs => entity.lock_seconds) end, p_delete);
    end if;
    p_wanted := p_wanted - coalesce(cardinality(chosen.places), 0);
    exit when p_wanted <= 0 or chosen.dry is null;
    p_classes := array(
      select c.number from relevo.message_class c
      where c.entity_id = p_entity and (p_classes is null or c.number = any (p_classes)) and not (c.number = any (chosen.dry)));
  end loop;
end $$;
