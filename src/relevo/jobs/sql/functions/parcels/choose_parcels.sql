-- Chooses parcels of handlers that a host serves in a lane, while no row comes before them and they fit. A parcel becomes rows
-- if it does not fit, waits in another lane, lacks jobs that may come back between the others, or if jobs are wanted singly;
-- but not if half of the room is used already. `rows_first` is false if the rows before them are locked. Also returns the
-- remaining room, and the position of the next parcel, before which rows may use that room.
create or replace function relevo.choose_parcels(
  p_lane text, inout room integer, wanted integer, p_handlers text[], singly boolean, rows_first boolean,
  out chosen bigint[], out next_rank bigint, out next_sequence bigint)
language plpgsql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp as $$
declare
  free text[] := array(  -- of the others each is a row
    select h from unnest(p_handlers) as h
    where not exists (select from relevo.job_brake b where h = any (b.handlers)));
  first record;  -- of the rows
  last_rank bigint := -9223372036854775808;
  last_sequence bigint := 0;
  p record;
  locked record;
  fits boolean;
begin
  chosen := '{}';
  singly := singly or exists (select from relevo.job_lane l where l.name = p_lane and (l.told > 1 or l.owner_cap is not null));
  select j.rank, j.sequence into first from (
    select r.rank, r.sequence from unnest(free) as h cross join lateral (
      select * from relevo.job r where r.handler = h and r.status = 0 and not r.chained and not r.capped and not r.alone
      order by r.rank, r.sequence limit 1) r
    union all
    select r.rank, r.sequence from relevo.job_brake b join relevo.job r on r.id = b.probe
    where r.handler = any (p_handlers) and r.status = 0 and not r.chained and not r.capped and not r.alone
  ) j order by j.rank, j.sequence limit 1;
  loop
    select w.* into p from unnest(free) as h cross join lateral (
      select x.number, x.rank, x.sequence, x.size, x.lane, x.done = '{}' as intact from relevo.job_parcel x
      where x.host is null and x.handler = h and (x.rank, x.sequence) > (last_rank, last_sequence)
      order by x.rank, x.sequence limit 1
    ) w order by w.rank, w.sequence limit 1;
    exit when p.number is null;
    if rows_first and (first.rank, first.sequence) < (p.rank, p.sequence) then exit; end if;
    fits := not singly and p.lane = p_lane and p.intact and p.size between relevo.parcel_min() and room;
    if not fits and 2 * room <= wanted then exit; end if;
    last_rank := p.rank;
    last_sequence := p.sequence;
    select q.ids, q.done = '{}' as intact into locked from relevo.job_parcel q
    where q.number = p.number and q.host is null for update skip locked;
    if locked.ids is null then
      null;  -- another has it
    elsif fits and locked.intact then
      chosen := chosen || p.number;
      room := room - p.size;
    else
      perform relevo.unpack_jobs(locked.ids);
      first := p;
      rows_first := true;  -- these are free
    end if;
  end loop;
  next_rank := p.rank;
  next_sequence := p.sequence;
end $$;
