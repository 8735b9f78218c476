-- description: snapshots of the positions of a feed unit, and an estimate of what a range holds
-- locks: nothing that exists; all objects are new

-- Where a unit stood: places in the open ranges, so that it fits whatever leases the unit has later.
create table relevo.feed_snapshot (
  unit_id    integer not null references relevo.unit on delete cascade,
  name       text not null,
  taken_at   timestamptz not null default relevo.now(),
  generation integer not null,
  places     jsonb not null,
  primary key (unit_id, name)
);

-- About how many items a range has stamped, as the planner would guess: counting millions to find
-- out whether there are millions would cost more than the answer is worth.
create function relevo.estimate_items(range_id integer) returns bigint language plpgsql volatile as $$
declare plan json;
begin
  execute format('explain (format json) select from relevo.item where range_id = %s', range_id) into plan;
  return (plan -> 0 -> 'Plan' ->> 'Plan Rows')::bigint;
end $$;
