-- Writes different items in the caller's transaction, without an LSN: they get it when the transaction
-- commits, so a caller that idles holds up only those who want the same items. Waits for items that
-- other transactions hold, in the order of keys. Answers one row per given row; `outcome` as of
-- `relevo.write_items`. If one of several is refused, the caller has to roll back.
create or replace function relevo.put_rows(
  container integer, kinds text[], pks text[], ids text[], epks text[], bodies text[],
  conditions text[], ttls integer[])
returns table (n bigint, outcome text, written_ordinal integer, written_ts timestamptz)
language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
  home relevo.container;
  given record;
  old relevo.item;
  stored boolean;
  here boolean;
  expires timestamptz;
  ordinal_before constant integer := coalesce(nullif(current_setting('relevo.ordinal', true), '')::integer, 0);
begin
  select * into home from relevo.container c where c.id = put_rows.container;
  if not found then
    raise exception 'the container was dropped meanwhile' using errcode = 'RV002';
  end if;
  perform set_config('relevo.ordinal', (ordinal_before + 2 * cardinality(kinds))::text, true);
  for given in
    select g.*, g.body::jsonb as document, f.id as range_id
    from unnest(kinds, pks, ids, epks, bodies, conditions, ttls)
      with ordinality as g (kind, pk, id, epk, body, condition, ttl, n)
    join relevo.feed_range f on f.container_id = home.id and f.sealed_lsn is null
      and g.epk >= f.epk_min and g.epk < f.epk_max
    order by g.pk collate "C", g.id collate "C"
  loop
    n := given.n;
    outcome := null;
    written_ordinal := ordinal_before + 2 * given.n;
    while outcome is null loop
      select * into old from relevo.item i /* a deadlock here: write shared items in one order */
      where i.container_id = home.id and i.pk = given.pk and i.id = given.id for update;
      stored := found;
      -- A row that was deleted and made again while we waited is another one.
      continue when not stored and exists (
        select from relevo.item i where i.container_id = home.id and i.pk = given.pk and i.id = given.id);
      written_ts := relevo.now_after_waiting();
      here := stored and (old.expires_at is null or old.expires_at > written_ts);
      expires := written_ts + case when coalesce(given.ttl, home.default_ttl) > 0
                                   then make_interval(secs => coalesce(given.ttl, home.default_ttl)) end;
      if given.kind = 'create' and here then
        outcome := 'exists';
      elsif given.kind in ('replace', 'delete') and not here then
        outcome := 'missing';
      elsif given.condition is not null and (not here
            or given.condition not in ('*', relevo.etag(old.lsn, old.ordinal))) then
        outcome := 'mismatch';
      elsif given.kind = 'delete' then
        delete from relevo.item i where i.container_id = home.id and i.pk = given.pk and i.id = given.id;
        outcome := 'deleted';
      elsif stored then
        update relevo.item i set
          range_id = given.range_id, ordinal = written_ordinal, lsn = 0, ts = written_ts,
          expires_at = expires, body = given.document
        where i.container_id = home.id and i.pk = given.pk and i.id = given.id;
        outcome := case when here then 'replaced' else 'created' end;
      else
        insert into relevo.item /* a deadlock here: write shared items in one order */
          (container_id, range_id, ordinal, lsn, ts, expires_at, pk, id, epk, body)
        values (home.id, given.range_id, written_ordinal, 0, written_ts, expires, given.pk, given.id,
                given.epk, given.document)
        on conflict (container_id, pk, id) do nothing;
        if found then outcome := 'created'; end if;  -- else another transaction has just made it
      end if;
    end loop;
    if outcome in ('created', 'replaced', 'deleted') then
      insert into relevo.stamp_request (range_id) values (given.range_id) on conflict do nothing;
      if home.retention is not null then
        -- An expired item that was not purged yet is deleted first; its place is the odd ordinal.
        insert into relevo.item_version (container_id, range_id, ordinal, lsn, previous_lsn, ts,
                                         operation, ttl_expired, pk, id, epk, body, previous)
        select home.id, given.range_id, v.ordinal, 0, v.previous_lsn, written_ts, v.operation, v.ttl_expired,
               given.pk, given.id, given.epk, v.body, case when home.previous_images then v.previous end
        from (
          select written_ordinal - 1, old.lsn, 'delete', true, null::jsonb, old.body where stored and not here
          union all
          select written_ordinal, case when here then old.lsn end,
                 case outcome when 'created' then 'create' when 'replaced' then 'replace' else 'delete' end,
                 false, case when given.kind <> 'delete' then given.document end,
                 case when here then old.body end
        ) as v (ordinal, previous_lsn, operation, ttl_expired, body, previous);
      end if;
    end if;
    return next;
  end loop;
end $$;
