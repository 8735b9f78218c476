-- Taken by changes of policies and queues, exclusive against all commands. Policies change rarely and
-- commands are short, so no command has to check whether a policy or queue is being deleted.
create or replace function relevo.lock_router_resources() returns bigint language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare counted bigint;
begin
  perform relevo.stay_awake();
  perform pg_advisory_xact_lock(1380273159, 0);
  update relevo.router_revision set revision = revision + 1 returning revision into counted;
  return counted;
end $$;
