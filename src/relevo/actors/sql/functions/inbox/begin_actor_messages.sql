-- Notes under the fences of their slots that messages begin which an owner may have begun before that was lost. If their last
-- owner was lost after it had noted the same, that counts as a crash; with `p_most` of them in a row a message is dead. Returns
-- those whose fence holds and that still wait. A repeat of the call counts nothing twice.
create or replace function relevo.begin_actor_messages(
  p_leases integer[], p_epochs bigint[], p_numbers bigint[], p_most integer, p_error text)
returns table (number bigint, is_dead boolean) language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
  stale integer[] := array(select stale_id from relevo.stale_fences(p_leases, p_epochs));
begin
  return query
  with begun as (
    select g.epoch, m.number,
           coalesce(m.crashes, 0) + coalesce((m.begun_epoch < l.in_order_from)::integer, 0) as crashes
    from unnest(p_leases, p_epochs, p_numbers) as g (lease, epoch, number)
    join relevo.lease l on l.id = g.lease
    join relevo.actor_message m on m.number = g.number and m.dead_at is null
    where g.lease <> all (stale)
    order by m.number for update of m
  )
  update relevo.actor_message m set
    crashes = b.crashes, begun_epoch = b.epoch,
    dead_at = case when b.crashes >= p_most then relevo.now() end, error = case when b.crashes >= p_most then p_error else m.error end
  from begun b where m.number = b.number
  returning m.number, m.dead_at is not null;
end $$;
