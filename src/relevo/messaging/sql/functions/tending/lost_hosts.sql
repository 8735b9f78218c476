-- The hosts that hold messages or sessions and whose life has ended. It steps from host to host, however many messages each holds.
create or replace function relevo.lost_hosts() returns uuid[] language plpgsql stable
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  return array(
    with recursive holder as (
      (select m.host from relevo.message m where m.host is not null order by m.host limit 1)
      union all
      select (select m.host from relevo.message m where m.host > h.host order by m.host limit 1) from holder h where h.host is not null
    ), session_holder as (
      (select s.host from relevo.message_session s where s.host is not null order by s.host limit 1)
      union all
      select (select s.host from relevo.message_session s where s.host > h.host order by s.host limit 1)
      from session_holder h where h.host is not null
    )
    select g.host from (select h.host from holder h union select h.host from session_holder h) g
    where g.host is not null and not exists (select from relevo.host o where o.incarnation = g.host and o.ended_at is null));
end $$;
