-- Chooses and locks the next messages of an entity or sub-queue, as `relevo.messaging.core.claiming` does message by message, but
-- on sets. Each class gives its first messages; every message gets a place in the order of all: by tier, rank and number; with
-- a floor share, others after so many express ones; with weights, at the virtual time of its class. Then as many of each class
-- are locked as came out first, passing over those that another claim has locked. Where turns are remembered (`message_tally`),
-- claims that have a choice follow each other. `fresh`: which of them were never delivered; `floors`: classes that only their
-- floor share let go first, once per message; `dry`: classes that gave less than their turn, since others hold the rest.
create or replace function relevo.choose_messages(
  entity relevo.message_entity, p_sub_queue smallint, p_wanted integer, p_classes smallint[], p_full_keys text[],
  out places tid[], out fresh boolean[], out floors smallint[], out dry smallint[])
language plpgsql volatile set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off  -- always in the order of the index
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  numbers smallint[];  -- classes with work
  by_weight constant boolean := p_sub_queue = 0 and entity.policy = 'weighted';
  patience constant integer := case when p_sub_queue = 0 and entity.policy = 'aging' then entity.floor_patience end;
  tally relevo.message_tally;
  run integer := 0;
  taken record;
begin
  if entity.fair and p_sub_queue = 0 then tally := relevo.lock_tally(entity.id); end if;
  numbers := array(
    select c.number from relevo.message_class c cross join lateral (  -- the limit keeps it from reading all that wait
      select from relevo.message m
      where m.entity_id = entity.id and m.sub_queue = p_sub_queue and m.class = c.number and m.state = 0
      order by m.rank, m.sequence limit 1) m
    where c.entity_id = entity.id and (p_classes is null or c.number = any (p_classes)));
  if cardinality(numbers) = 0 then return; end if;
  if cardinality(numbers) = 1 then
    select array_agg(m.ctid order by m.rank, m.sequence), array_agg(not m.delivered order by m.rank, m.sequence) into places, fresh
    from (
      select m.ctid, m.rank, m.sequence, m.delivered from relevo.message m
      where m.entity_id = entity.id and m.sub_queue = p_sub_queue and m.class = numbers[1] and m.state = 0
        and (m.expires_at is null or m.expires_at > at)
        and (p_full_keys is null or not coalesce(m.fairness_key, '') = any (p_full_keys))
      order by m.rank, m.sequence limit p_wanted for update skip locked) m;
    return;
  end if;
  if by_weight or patience is not null then
    tally := relevo.lock_tally(entity.id);
    run := tally.express_run;
  end if;
  with head as materialized (
    select c.number, c.base, case when p_sub_queue = 0 then c.tier else 1 end as tier, 232792560 / c.weight as step,
      tally.vtimes[array_position(tally.numbers, c.number)] as vtime, m.rank, m.sequence,
      row_number() over (partition by c.number order by m.rank, m.sequence) as nth
    from relevo.message_class c cross join lateral (
      select m.rank, m.sequence from relevo.message m
      where m.entity_id = entity.id and m.sub_queue = p_sub_queue and m.class = c.number and m.state = 0
        and (m.expires_at is null or m.expires_at > at)
        and (p_full_keys is null or not coalesce(m.fairness_key, '') = any (p_full_keys))
      order by m.rank, m.sequence limit p_wanted) m
    where c.entity_id = entity.id and c.number = any (numbers)
  ), class as materialized (
    select h.number, h.tier, h.step, coalesce(h.vtime, min(h.vtime) over (), 0) as vtime, count(*) as amount
    from head h group by h.number, h.tier, h.step, h.vtime
  ), keyed as (
    select h.number, h.tier, h.nth, h.rank, h.sequence,
      case when by_weight then k.vtime + (h.nth - 1) * h.step
           when patience is null then h.tier
           when h.tier = 0 then row_number() over tiers
           else greatest(0, patience - run) + (row_number() over tiers - 1) * patience end as key,
      case when by_weight then -h.base when patience is null then 0 else h.tier end as second
    from head h join class k on k.number = h.number
    window tiers as (partition by h.tier order by h.rank, h.sequence)
  ), placed as materialized (
    select k.number, k.tier, k.nth, k.key, row_number() over (order by k.key, k.second, k.rank, k.sequence) as place
    from keyed k order by place limit p_wanted
  ), turn as materialized (
    select p.number, count(*) as amount from placed p group by p.number
  ), locked as (
    select t.number, array_agg(m.ctid order by m.rank, m.sequence) as rows, array_agg(m.delivered order by m.rank, m.sequence) as delivered
    from turn t cross join lateral (
      select m.ctid, m.rank, m.sequence, m.delivered from relevo.message m
      where m.entity_id = entity.id and m.sub_queue = p_sub_queue and m.class = t.number and m.state = 0
        and (m.expires_at is null or m.expires_at > at)
        and (p_full_keys is null or not coalesce(m.fairness_key, '') = any (p_full_keys))
      order by m.rank, m.sequence limit t.amount for update skip locked) m
    group by t.number
  ), got as materialized (
    select p.number, p.tier, p.key, p.place, l.rows[p.nth] as row, l.delivered[p.nth] as delivered
    from placed p join locked l on l.number = p.number and cardinality(l.rows) >= p.nth
  ), ends as (  -- the place of the last message of a class; beyond this claim if it has more
    select k.number, k.step, k.vtime, case when count(g.place) < k.amount then p_wanted else max(g.place) end as last
    from class k left join got g on g.number = k.number group by k.number, k.step, k.vtime, k.amount
  ), shares as (  -- virtual times after the turns in which there was a choice
    select e.number, e.last >= c.until as active,
      e.vtime + (select count(*) from got g where g.number = e.number and g.place <= c.until) * e.step as vtime
    from ends e cross join (select last as until from ends order by last desc offset 1 limit 1) c where by_weight
  ), express as (
    select coalesce(sum(k.amount) filter (where k.tier = 0), 0) as amount, sum(k.amount) filter (where k.tier > 0) as others from class k
  )
  select array_agg(g.row order by g.place) as rows, array_agg(not g.delivered order by g.place) as fresh,
    (select x.amount from express x) as express, (select x.others from express x) as others,
    count(*) filter (where g.tier = 0) as express_taken,
    array_agg(g.number) filter (where g.tier > 0 and g.key < (select x.amount from express x)) as floors,
    (select array_agg(t.number) from turn t where t.amount > (select count(*) from got o where o.number = t.number)) as dry,
    (select array_agg(h.number) from shares h) as numbers,
    (select array_agg(h.vtime) from shares h) as vtimes,
    (select min(h.vtime) filter (where h.active) from shares h) as least
  into taken from got g;
  places := taken.rows;
  fresh := taken.fresh;
  dry := taken.dry;
  if by_weight and taken.least is not null then
    perform relevo.advance_shares(entity.id, taken.numbers, taken.vtimes, taken.least);
  elsif patience is not null and taken.express > 0 and taken.others > 0 then
    floors := taken.floors;
    run := greatest(0, case coalesce(cardinality(floors), 0)
      when 0 then run + taken.express_taken
      when taken.others then 0
      else taken.express_taken - (greatest(0, patience - run) + (cardinality(floors) - 1) * patience) end);
    if run is distinct from tally.express_run then
      update relevo.message_tally t set express_run = run where t.entity_id = entity.id;
    end if;
  end if;
end $$;
