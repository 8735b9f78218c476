-- Opens gates that the caller has locked. It is a statement after the one that ended a job, so that it
-- sees all commits up to now: otherwise neither would see a job that commits in between.
create or replace function relevo.open_job_gates(keys text[]) returns void language plpgsql volatile
set enable_seqscan = off
set search_path = pg_catalog, pg_temp as $$
declare gate record;
begin
  with opened as (
    update relevo.job j set chained = false
    from (
      select distinct on (k.key) o.id
      from unnest(keys) as k (key)
      cross join lateral (
        select o.id, o.sequence from relevo.job o where o.chain = substr(k.key, 2) order by o.sequence limit 1
      ) o
      where left(k.key, 1) = 'c'
        and not exists (select from relevo.job x where x.chain = substr(k.key, 2) and not x.chained)
    ) head
    where j.id = head.id and j.chained
    returning j.lane, j.owner, j.capped
  )
  insert into relevo.job_gate (key)
  select distinct relevo.job_owner_key(lane, owner) from opened where capped;
  for gate in
    select l.name as lane, o.owner, l.owner_cap as cap, l.owner_cap - (
        select count(*) from relevo.job a
        where a.lane = l.name and a.owner = o.owner and not a.capped and a.status <> 10) as room
    from (select distinct substr(k, 2) as key from unnest(keys) as k where left(k, 1) = 'o') k
    cross join lateral (select split_part(k.key, ' ', 1) as lane, split_part(k.key, ' ', 2)::uuid as owner) o
    join relevo.job_lane l on l.name = o.lane
  loop
    update relevo.job j set capped = false
    where j.id in (
      select w.id from relevo.job w
      where w.lane = gate.lane and w.owner = gate.owner and w.capped and not w.chained and w.status = 0
      order by w.rank, w.sequence limit case when gate.cap is not null then greatest(0, gate.room) end
    );
    if gate.room < 0 then
      -- The cap was lowered: jobs that have not started wait again, the latest first.
      update relevo.job j set capped = true
      where j.id in (
        select w.id from relevo.job w
        where w.lane = gate.lane and w.owner = gate.owner and not w.capped and w.status = 0
        order by w.rank desc, w.sequence desc limit -gate.room for update skip locked
      );
    end if;
  end loop;
end $$;
