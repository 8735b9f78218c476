-- What a submit of a handler means: its values where it has some, else those of the handler and its lane. No row: there is no
-- such lane. Inlined.
create or replace function relevo.job_terms(at timestamptz, p_handler text, p_name text, p_lane text, p_priority smallint)
returns table (handler text, name text, lane text, priority smallint, rank bigint, operation_type integer, auto_delete boolean,
  events text, told smallint, owner_cap integer, shared_tokens boolean)
language sql stable
begin atomic
  select p_handler, coalesce(p_name, p_handler), l.name, coalesce(p_priority, h.priority, 4::smallint),
    relevo.job_rank(at, l.priority, coalesce(p_priority, h.priority, 4)::integer), coalesce(h.operation_type, 54),
    coalesce(h.auto_delete, false), l.events, l.told, l.owner_cap, l.shared_tokens
  from (select p_handler as name) g
  left join relevo.job_handler h on h.name = g.name
  join relevo.job_lane l on l.name = coalesce(p_lane, h.lane, 'default');
end;
