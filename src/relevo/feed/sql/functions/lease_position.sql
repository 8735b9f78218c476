-- The position of a lease, or the later one up to which trimming found nothing unread.
create or replace function relevo.lease_position(place jsonb, cleared jsonb) returns jsonb language sql immutable parallel safe
begin atomic
  select case when cleared = '{}' then place else (
    select coalesce(jsonb_object_agg(p.key, greatest(p.value::bigint, (cleared ->> p.key)::bigint)), '{}')
    from jsonb_each_text(place) as p) end;
end;
