-- Submits jobs with a token, a start, an owner, or rare fields.
create or replace function relevo.submit_special_jobs(
  ids uuid[], handlers text[], datas text[], names text[], tokens text[], starts timestamptz[], lanes text[],
  priorities smallint[], owners uuid[], options jsonb[])
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare now_ timestamptz := relevo.now();
begin
  if exists (select from unnest(options) as o (given) where o.given ? 'batch') then
    perform relevo.enter_batches(array(select (o.given ->> 'batch')::uuid from unnest(options) as o (given)));
  end if;
  with given as (
    select g.*, p.name as title, p.lane, p.priority as urgency, p.rank, p.owner_cap,
           coalesce((g.o ->> 'operation_type')::integer, p.operation_type) as operation_type,
           coalesce((g.o ->> 'auto_delete')::boolean, p.auto_delete) as auto_delete,
           coalesce(g.o ->> 'chain', case when g.o -> 'series' is null then relevo.job_chain(g.token, g.owner, p.shared_tokens) end) as chain,
           now_ as at
    from unnest(ids, handlers, datas, names, tokens, starts, lanes, priorities, owners, options)
      with ordinality as g (id, handler, data, name_, token, start, lane_, priority, owner, o, n)
    cross join lateral relevo.job_terms(now_, g.handler, g.name_, g.lane_, g.priority) p
  ), made as (
    insert into relevo.job (
      id, rank, created_at, modified_at, status, postpone_until, priority, operation_type, lane, handler, name,
      data, token, chain, chained, capped, owner, created_by, modified_by, retain, auto_delete, system, hold,
      depth, correlation, correlation_at, request, extension, message_name, regarding_type, regarding_id,
      series, pattern, anchor, zone, nominal, next_at, waiting_event, details, batch, origin)
    select g.id, g.rank, g.at, g.at, case when g.start > g.at or (g.o ->> 'deferred')::boolean then 10 else 0 end, g.start,
      g.urgency, g.operation_type, g.lane, g.handler, g.title, g.data,
      nullif(g.token, ''), g.chain, g.chain is not null, g.owner_cap is not null and g.owner is not null,
      g.owner, coalesce((g.o ->> 'created_by')::uuid, g.owner), coalesce((g.o ->> 'created_by')::uuid, g.owner),
      coalesce((g.o ->> 'retain')::boolean, false), g.auto_delete, coalesce((g.o ->> 'system')::boolean, false),
      coalesce((g.o ->> 'hold')::boolean, false), coalesce((g.o ->> 'depth')::integer, 1),
      coalesce((g.o ->> 'correlation')::uuid, g.id), coalesce((g.o ->> 'correlation_at')::timestamptz, g.at),
      (g.o ->> 'request')::uuid, coalesce(g.o ->> 'extension', g.handler), coalesce(g.o ->> 'message_name', g.handler), g.o ->> 'regarding_type',
      g.o ->> 'regarding_id', (g.o ->> 'series')::uuid, g.o ->> 'pattern', (g.o ->> 'anchor')::timestamptz,
      g.o ->> 'zone', (g.o ->> 'nominal')::timestamptz, (g.o ->> 'next_at')::timestamptz,
      coalesce((g.o ->> 'waiting_event')::boolean, false), g.o -> 'details', (g.o ->> 'batch')::uuid, (g.o ->> 'origin')::uuid
    from given g
    order by g.n
    returning id, lane, chain, capped, owner, batch
  ), counted as (
    insert into relevo.job_batch_delta (batch, added) select batch, count(*) from made where batch is not null group by batch
  )
  insert into relevo.job_gate (key)
  select distinct 'c' || chain from made where chain is not null
  union all
  select distinct relevo.job_owner_key(lane, owner) from made where capped;
end $$;
