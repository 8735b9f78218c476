-- Chooses and locks the next messages of an entity or sub-queue, as `relevo.messaging.core.claiming` does message by message, but
-- on sets. Each class gives its first messages; every message gets a place in the order of all: by tier, rank and number; with
-- a floor share, others after so many express ones; with weights, at the virtual time of its class. Then as many of each class
-- are locked as came out first, passing over those that another claim has locked. Where turns are remembered (`message_tally`),
-- claims that have a choice follow each other.
create or replace function relevo.choose_messages(
  p_entity integer, p_sub_queue smallint, p_wanted integer, p_classes smallint[] default null, p_full_keys text[] default null,
  out places tid[], out floor_claims integer)
language plpgsql volatile set plan_cache_mode = force_generic_plan set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  entity relevo.message_entity;
  numbers smallint[];  -- classes with work
  by_weight boolean;
  patience integer;
  run integer;
  tally relevo.message_tally;
  taken record;
begin
  floor_claims := 0;
  select * into entity from relevo.message_entity e where e.id = p_entity and e.status in ('active', 'send_disabled');
  if not found then return; end if;
  numbers := array(
    select c.number from relevo.message_class c
    where c.entity_id = p_entity and (p_classes is null or c.number = any (p_classes)) and exists (
      select from relevo.message m
      where m.entity_id = p_entity and m.sub_queue = p_sub_queue and m.class = c.number and m.state = 0));
  if cardinality(numbers) = 0 then return; end if;
  if cardinality(numbers) = 1 then
    select array_agg(m.ctid order by m.rank, m.sequence) into places from (
      select m.ctid, m.rank, m.sequence from relevo.message m
      where m.entity_id = p_entity and m.sub_queue = p_sub_queue and m.class = numbers[1] and m.state = 0
        and (m.expires_at is null or m.expires_at > at)
        and (p_full_keys is null or not coalesce(m.fairness_key, '') = any (p_full_keys))
      order by m.rank, m.sequence limit p_wanted for update skip locked) m;
    return;
  end if;
  by_weight := p_sub_queue = 0 and entity.policy = 'weighted';
  patience := case when p_sub_queue = 0 and entity.policy = 'aging' then entity.floor_patience end;
  if by_weight or patience is not null then
    insert into relevo.message_tally (entity_id) values (p_entity) on conflict do nothing;
    select * into tally from relevo.message_tally t where t.entity_id = p_entity for update;
    run := tally.express_run;
  end if;
  with class as materialized (
    select c.number, c.base, c.weight, case when p_sub_queue = 0 then c.tier else 1 end as tier,
      coalesce(tally.vtimes[array_position(tally.numbers, c.number)],
        (select min(v.vtime) from unnest(tally.numbers, tally.vtimes) as v (number, vtime) where v.number = any (numbers)), 0) as vtime
    from relevo.message_class c where c.entity_id = p_entity and c.number = any (numbers)
  ), head as materialized (
    select c.number, c.tier, c.base, c.weight, c.vtime, m.rank, m.sequence, m.nth,
      row_number() over (partition by c.tier order by m.rank, m.sequence) as tier_nth
    from class c cross join lateral (
      select m.rank, m.sequence, row_number() over () as nth from (
        select m.rank, m.sequence from relevo.message m
        where m.entity_id = p_entity and m.sub_queue = p_sub_queue and m.class = c.number and m.state = 0
          and (m.expires_at is null or m.expires_at > at)
          and (p_full_keys is null or not coalesce(m.fairness_key, '') = any (p_full_keys))
        order by m.rank, m.sequence limit p_wanted) m) m
  ), keyed as (
    select h.*,
      case when by_weight then h.vtime + (h.nth - 1)::float8 / h.weight
           when patience is null then h.tier
           when h.tier = 0 then h.tier_nth
           else greatest(0, patience - run) + (h.tier_nth - 1) * patience end as key,
      case when by_weight then -h.base when patience is null then 0 else h.tier end as second
    from head h
  ), placed as materialized (
    select k.*, row_number() over (order by k.key, k.second, k.rank, k.sequence) as place
    from keyed k order by place limit p_wanted
  ), locked as (
    select w.number, m.place as row, row_number() over (partition by w.number order by m.rank, m.sequence) as nth
    from (select p.number, count(*) as amount from placed p group by p.number) w cross join lateral (
      select m.ctid as place, m.rank, m.sequence from relevo.message m
      where m.entity_id = p_entity and m.sub_queue = p_sub_queue and m.class = w.number and m.state = 0
        and (m.expires_at is null or m.expires_at > at)
        and (p_full_keys is null or not coalesce(m.fairness_key, '') = any (p_full_keys))
      order by m.rank, m.sequence limit w.amount for update skip locked) m
  ), available as (
    select h.number, h.tier, h.weight, h.vtime, count(*) as amount from head h group by h.number, h.tier, h.weight, h.vtime
  ), ends as (  -- the place of the last message of a class; beyond this claim if it has more
    select a.number, a.weight, a.vtime,
      case when count(p.place) < a.amount or a.amount >= p_wanted then p_wanted else max(p.place) end as last
    from available a left join placed p on p.number = a.number group by a.number, a.weight, a.vtime, a.amount
  ), shares as (  -- virtual times after the turns in which there was a choice
    select e.number, e.last >= c.until as active,
      e.vtime + (select count(*) from placed p where p.number = e.number and p.place <= c.until)::float8 / e.weight as vtime
    from ends e cross join (select last as until from ends order by last desc offset 1 limit 1) c
  )
  select
    (select array_agg(l.row order by p.place) from locked l join placed p on p.number = l.number and p.nth = l.nth) as rows,
    (select sum(a.amount) from available a where a.tier = 0) as express,
    (select sum(a.amount) from available a where a.tier > 0) as others,
    (select count(*) from placed p where p.tier = 0) as express_taken,
    (select count(*) from placed p where p.tier > 0 and p.key < (select sum(a.amount) from available a where a.tier = 0)) as floor_taken,
    (select array_agg(h.number) from shares h) as numbers,
    (select array_agg(h.vtime) from shares h) as vtimes,
    (select min(h.vtime) filter (where h.active) from shares h) as least
  into taken;
  places := taken.rows;
  if by_weight and taken.least is not null then
    perform relevo.advance_shares(p_entity, taken.numbers, taken.vtimes, taken.least);
  elsif patience is not null and taken.express > 0 and taken.others > 0 then
    floor_claims := taken.floor_taken;
    run := case when taken.floor_taken = 0 then run + taken.express_taken
                when taken.floor_taken = taken.others then 0
                else taken.express_taken - (greatest(0, patience - run) + (taken.floor_taken - 1) * patience) end;
    if run is distinct from tally.express_run then
      update relevo.message_tally t set express_run = run where t.entity_id = p_entity;
    end if;
  end if;
end $$;
