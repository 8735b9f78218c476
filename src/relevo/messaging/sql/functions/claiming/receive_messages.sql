-- Claims messages for a receiver from entities by their keys; accepts what has arrived for them first. If one does not exist
-- (`missing`), gives nothing now (`disabled`) or has sessions (`sessions`), that is the only answer, with its key as the id.
create or replace function relevo.receive_messages(
  p_keys text[], p_sub_queues smallint[], p_wanted integer, p_token bigint, p_delete boolean)
returns setof relevo.message_notice language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  sources integer[];
  refusal text;
  refused text;
begin
  select array_agg(e.id order by k.n),
    min(r.word || ' ' || k.key) into sources, refusal
  from unnest(p_keys, p_sub_queues) with ordinality as k (key, sub_queue, n)
  left join relevo.message_entity e on e.key = k.key and e.kind <> 'topic'
  cross join lateral (select case when e.id is null then 'missing' when e.status not in ('active', 'send_disabled') then 'disabled'
    when e.has_sessions and k.sub_queue = 0 then 'sessions' end as word) r;
  if refusal is not null then
    refused := substring(refusal from position(' ' in refusal) + 1);
    refusal := split_part(refusal, ' ', 1);
    return query select (n.notice).* from (
      select (refusal, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, refused,
              null, null, null, null, null, null)::relevo.message_notice as notice) n;
    return;
  end if;
  if exists (select from relevo.message_arrival a where a.entity_id = any (sources)) then
    perform relevo.accept_plain_arrivals(sources);
  end if;
  perform relevo.note_use(sources);
  return query select * from relevo.claim_messages(sources, p_sub_queues, p_wanted, p_token, p_delete => p_delete);
end $$;
