-- description: feed units hold trimming back, properties of leases, parked changes, stalls
-- locks: feed_unit, feed_lease and dead_letter for a moment; new columns without rewriting them

-- How much longer versions are kept for a unit that has not read them: seconds, or bytes per range;
-- and whether a dead letter blocks its key.
alter table relevo.feed_unit
  add column hold_seconds double precision check (hold_seconds > 0),
  add column hold_bytes   bigint check (hold_bytes > 0),
  add column block_keys   boolean not null default false;

-- `cleared` is, by range, up to where trimming found nothing unread of this lease: its position may
-- be older than that, since it is written only when something moved it. A stall is that of an epoch.
alter table relevo.feed_lease
  add column properties    jsonb not null default '{}',
  add column cleared       jsonb not null default '{}',
  add column stalled_since timestamptz,
  add column stalled_epoch bigint;

-- Where a lease stands: its position, or where trimming cleared the way for it.
create function relevo.standing(place jsonb, cleared jsonb) returns jsonb language sql immutable parallel safe
begin atomic
  select case when cleared = '{}' then place else (
    select coalesce(jsonb_object_agg(p.key, greatest(p.value::bigint, (cleared ->> p.key)::bigint)), '{}')
    from jsonb_each_text(place) as p) end;
end;

-- A parked change waits behind a dead letter of its key; while a key has a letter that blocks, later
-- changes are parked. The order of a key is that of the log: (lsn, ordinal).
alter table relevo.dead_letter drop constraint dead_letter_reason_check;
alter table relevo.dead_letter add constraint dead_letter_reason_check
  check (reason in ('failed', 'crash', 'parked'));
alter table relevo.dead_letter add column blocks boolean not null default false;
create index dead_letter_blocks on relevo.dead_letter (unit_id, pk) where blocks;
