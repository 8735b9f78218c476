-- Serialises waits for an event and its senders, so that none misses the other.
create or replace function relevo.lock_job_event(event text, key text) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform relevo.stay_awake();
  perform pg_advisory_xact_lock(1380273161, hashtext(event || chr(31) || key));
end $$;
