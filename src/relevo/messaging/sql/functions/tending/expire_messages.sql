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
  select array_agg(o.sequence), array_agg(distinct o.session) filter (where o.session is not null) into old, sessions from (
    select m.sequence, m.session from relevo.message m where m.state in (0, 5, 6) and m.expires_at <= at
    order by m.expires_at limit p_limit) o;
  if old is null then return 0; end if;
  if sessions is not null then perform relevo.lock_sessions(sessions); end if;
  old := array(
    select m.sequence from relevo.message m where m.sequence = any (old) and m.state in (0, 5, 6) and m.expires_at <= at
    order by m.sequence for update skip locked);
  kept := array(select m.sequence from relevo.message m join relevo.message_entity e on e.id = m.entity_id
    where m.sequence = any (old) and m.sub_queue = 0 and e.dead_letter_expired);
  if cardinality(kept) > 0 then perform relevo.bury_messages(kept, 'TTLExpiredException', 'The message expired and was dead lettered.'); end if;
  perform relevo.remove_messages(array(select o from unnest(old) as o except select k from unnest(kept) as k), true);
  if sessions is not null then perform relevo.open_sessions(sessions); end if;
  return cardinality(old);
end $$;
