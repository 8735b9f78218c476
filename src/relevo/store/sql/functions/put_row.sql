-- Writes one item in the caller's transaction, without an LSN: it gets it when the transaction commits,
-- so a caller that idles holds up only those who want the same item. Waits for an item that another
-- transaction holds. `outcome` is as of `relevo.write_items`.
create or replace function relevo.put_row(
  home relevo.container, kind text, key text, item_id text, hash text, document jsonb,
  condition text, ttl integer, place integer,
  out outcome text, out written_ts timestamptz)
language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
  range_number integer;
  old relevo.item;
  stored boolean;
  here boolean;
  expires timestamptz;
begin
  select f.id into range_number from relevo.feed_range f
  where f.container_id = home.id and f.sealed_lsn is null and hash >= f.epk_min and hash < f.epk_max;
  if not found then
    raise exception 'the container was dropped meanwhile' using errcode = 'RV002';
  end if;
  while outcome is null loop
    select * into old from relevo.item i /* a deadlock here: write shared items in one order */
    where i.container_id = home.id and i.pk = key and i.id = item_id for update;
    stored := found;
    -- A row that was deleted and made again while we waited is another one.
    continue when not stored and exists (
      select from relevo.item i where i.container_id = home.id and i.pk = key and i.id = item_id);
    written_ts := relevo.now_after_waiting();
    here := stored and (old.expires_at is null or old.expires_at > written_ts);
    expires := written_ts + case when coalesce(ttl, home.default_ttl) > 0
                                 then make_interval(secs => coalesce(ttl, home.default_ttl)) end;
    if kind = 'create' and here then
      outcome := 'exists';
    elsif kind in ('replace', 'delete') and not here then
      outcome := 'missing';
    elsif condition is not null and (not here
          or condition not in ('*', relevo.etag(old.lsn, old.ordinal))) then
      outcome := 'mismatch';
    elsif kind = 'delete' then
      delete from relevo.item i where i.container_id = home.id and i.pk = key and i.id = item_id;
      outcome := 'deleted';
    elsif stored then
      update relevo.item i set
        range_id = range_number, ordinal = place, lsn = 0, ts = written_ts,
        expires_at = expires, body = document
      where i.container_id = home.id and i.pk = key and i.id = item_id;
      outcome := case when here then 'replaced' else 'created' end;
    else
      insert into relevo.item /* a deadlock here: write shared items in one order */
        (container_id, range_id, ordinal, lsn, ts, expires_at, pk, id, epk, body)
      values (home.id, range_number, place, 0, written_ts, expires, key, item_id, hash, document)
      on conflict (container_id, pk, id) do nothing;
      if found then outcome := 'created'; end if;  -- else another transaction has just made it
    end if;
  end loop;
  if outcome not in ('created', 'replaced', 'deleted') then return; end if;
  insert into relevo.stamp_request (range_id, with_versions)
    values (range_number, home.retention is not null) on conflict do nothing;
  if home.retention is not null then
    -- An expired item that was not purged yet is deleted first; its place is the odd ordinal.
    insert into relevo.item_version (container_id, range_id, ordinal, lsn, previous_lsn, ts,
                                     operation, ttl_expired, pk, id, epk, body, previous)
    select home.id, range_number, v.ordinal, 0, v.previous_lsn, written_ts, v.operation, v.ttl_expired,
           key, item_id, hash, v.body, case when home.previous_images then v.previous end
    from (
      select place - 1, old.lsn, 'delete', true, null::jsonb, old.body where stored and not here
      union all
      select place, case when here then old.lsn end,
             case outcome when 'created' then 'create' when 'replaced' then 'replace' else 'delete' end,
             false, case when kind <> 'delete' then document end,
             case when here then old.body end
    ) as v (ordinal, previous_lsn, operation, ttl_expired, body, previous);
  end if;
end $$;
