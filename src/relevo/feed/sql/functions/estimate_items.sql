-- About how many items a range has stamped, as the planner would guess: counting millions to find
-- out whether there are millions would cost more than the answer is worth.
create or replace function relevo.estimate_items(range_id integer) returns bigint language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare plan json;
begin
  execute format('explain (format json) select from relevo.item where range_id = %s', range_id) into plan;
  return (plan -> 0 -> 'Plan' ->> 'Plan Rows')::bigint;
end $$;
