-- Removes waiting messages whose time to live is over, or dead-letters them if their entity says so; from dead-letter queues they
-- are deleted. Returns how many.
create or replace function relevo.expire_messages(p_limit integer default 1000) returns integer language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  old bigint[];
  kept bigint[];
  sessions bigint[];
begin
  select array_agg(o.sequence) into old from (
    select m.sequence from relevo.message m where m.state in (0, 5, 6) and m.expires_at <= at
    order by m.expires_at limit p_limit for update skip locked) o;
  if old is null then return 0; end if;
  kept := array(select m.sequence from relevo.message m join relevo.message_entity e on e.id = m.entity_id
    where m.sequence = any (old) and m.sub_queue = 0 and e.dead_letter_expired);
  if cardinality(kept) > 0 then perform relevo.bury_messages(kept, 'TTLExpiredException', 'The message expired and was dead lettered.'); end if;
  with gone as (
    delete from relevo.message m where m.sequence = any (old) and not (m.sequence = any (kept))
    returning m.entity_id, m.sub_queue, m.class, m.size, m.session
  ), counted as (
    insert into relevo.message_delta (entity_id, sub_queue, class, active, bytes, expired)
    select g.entity_id, g.sub_queue, g.class, -count(*), -sum(g.size), count(*) from gone g group by g.entity_id, g.sub_queue, g.class
  )
  select array_agg(distinct g.session) filter (where g.session is not null) into sessions from gone g;
  if sessions is not null then perform relevo.open_sessions(sessions); end if;
  return cardinality(old);
end $$;
