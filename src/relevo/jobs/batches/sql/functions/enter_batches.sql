-- Refuses submits into batches that do not exist or are closed, and lets no one close the others before this transaction
-- has ended. The lock lets others enter and the leader count.
create or replace function relevo.enter_batches(ids uuid[]) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  b record;
  wanted uuid;
begin
  for wanted in select distinct i from unnest(ids) as i where i is not null order by i loop
    select x.id, x.closed_at into b from relevo.job_batch x where x.id = wanted for key share;
    if b.id is null then
      raise exception 'there is no batch %', wanted using errcode = 'RV016';
    elsif b.closed_at is not null then
      raise exception 'batch % is closed', wanted
        using errcode = 'RV017', hint = 'Submit before it is closed, or into a new batch.';
    end if;
  end loop;
end $$;
