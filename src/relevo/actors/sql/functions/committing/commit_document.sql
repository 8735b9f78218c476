-- Commits a change of one actor that is its document alone, as `relevo.commit_turns` commits a batch: the fence of its slot,
-- then the row, if the revision is the one it builds on. Returns null, `stale` or `conflict`. Half the CPU time of a batch of one.
create or replace function relevo.commit_document(
  p_number bigint, p_lease integer, p_epoch bigint, p_actor text, p_group text, p_slot integer, p_base bigint, p_revision bigint,
  p_incarnation bigint, p_schema integer, p_document bytea)
returns text language plpgsql volatile
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
declare
  is_stale boolean := exists (select from relevo.stale_fences(array[p_lease], array[p_epoch]));
begin
  if not is_stale and p_base > 0 then
    update relevo.actor a set
      revision = p_revision, commit_number = p_number, updated_at = relevo.now(), deleted_at = null,
      document = coalesce(p_document, a.document), schema = case when p_document is not null then p_schema else a.schema end
    where a.id = p_actor and a.revision = p_base and a.incarnation = p_incarnation;
  elsif not is_stale and p_incarnation = 0 then
    insert into relevo.actor (id, placement_group, slot, revision, commit_number, updated_at, schema, document)
    values (p_actor, p_group, p_slot, p_revision, p_number, relevo.now(), p_schema, p_document)
    on conflict (id) do nothing;
  end if;
  -- A statement by itself: it sees what an earlier attempt wrote while this one waited for the row.
  if found or exists (
    select from relevo.actor a where a.id = p_actor and a.revision = p_revision and a.commit_number = p_number) then
    return null;
  end if;
  return case when is_stale then 'stale' else 'conflict' end;
end $$;
