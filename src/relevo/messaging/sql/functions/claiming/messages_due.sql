-- Whether a host has anything to do for messages: one can be claimed for its consumers, given by number and source, one of its
-- own is asked to make room, or, if it is `vacant` and knows of none, it holds one.
create or replace function relevo.messages_due(p_host uuid, p_consumers integer[], p_sources integer[], vacant boolean) returns boolean
language plpgsql stable set plan_cache_mode = force_generic_plan set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  return exists (select from relevo.consumers_with_messages(p_host, p_consumers, p_sources))
    or exists (select from relevo.message m where m.host = p_host and m.host is not null and m.preempt_asked)
    or vacant and exists (select from relevo.message m where m.host = p_host);
end $$;
