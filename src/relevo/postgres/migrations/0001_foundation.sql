-- description: the clock, hosts, units, members and leases, access keys and shared settings
-- locks: nothing that exists; all objects are new

-- One clock for every decision (DESIGN D3). `shift` is what tests travel by and what a failover to a
-- server whose clock is behind adds; `mark` is the latest instant that was handed out, at most a
-- second old while a host runs.
create table relevo.clock (
  one   boolean primary key default true check (one),
  shift interval not null default '0',
  mark  timestamptz not null default '-infinity'
) with (fillfactor = 10);
insert into relevo.clock default values;

-- Statement time, and STABLE, so that an index serves `due <= relevo.now()`.
create function relevo.now() returns timestamptz
language sql stable parallel safe
begin atomic
  select greatest(statement_timestamp() + c.shift, c.mark) from relevo.clock c;
end;

create table relevo.host (
  incarnation uuid primary key,
  name        text not null,
  lease_until timestamptz not null,
  started_at  timestamptz not null,
  ended_at    timestamptz,
  end_reason  text check (end_reason in ('stopped', 'lapsed', 'superseded')),
  draining    boolean not null default false,
  address     text,
  labels      jsonb not null default '{}',
  version     text not null,
  check ((ended_at is null) = (end_reason is null))
) with (fillfactor = 50);
create unique index host_name on relevo.host (name) where ended_at is null;

create table relevo.unit (
  id              integer generated always as identity primary key,
  kind            text not null,
  name            text not null,
  strict          boolean not null,
  handoff_timeout interval not null,
  max_moves       integer,
  rest            interval not null,
  unique (kind, name)
);

create table relevo.member (
  unit_id    integer not null references relevo.unit on delete cascade,
  host       uuid not null references relevo.host on delete cascade,
  weight     double precision not null default 1 check (weight > 0 and weight < 'infinity'),
  min_leases integer not null default 0,
  max_leases integer,
  draining   boolean not null default false,
  joined_at  timestamptz not null default relevo.now(),
  primary key (unit_id, host)
);
create index member_host on relevo.member (host);

create table relevo.lease (
  id            integer generated always as identity primary key,
  unit_id       integer not null references relevo.unit on delete cascade,
  name          text not null,
  owner         uuid references relevo.host,
  epoch         bigint not null default 0,
  position      jsonb not null default '{}',
  state         text not null default 'active' check (state in ('active', 'paused', 'blocked')),
  handoff_to    uuid,
  handoff_until timestamptz,
  free_since    timestamptz default relevo.now(),
  moved_at      timestamptz,
  clean         boolean not null default true,
  unique (unit_id, name),
  check ((handoff_to is null) = (handoff_until is null)),
  check ((owner is null) = (free_since is not null))
) with (fillfactor = 70);
create index lease_owner on relevo.lease (owner) where owner is not null;

-- The assertion behind every fence: ownership changes only together with a higher epoch, and epochs
-- never fall (change-feed L1, actors I2). It can only fire on a fault of Relevo.
create function relevo.guard_lease() returns trigger language plpgsql as $$
begin
  if new.epoch < old.epoch or (new.owner is distinct from old.owner and new.epoch = old.epoch) then
    raise exception 'lease % of unit %: owner % epoch % may not become owner % epoch %',
      old.name, old.unit_id, old.owner, old.epoch, new.owner, new.epoch;
  end if;
  return new;
end $$;
create trigger guard_lease before update of owner, epoch on relevo.lease
  for each row execute function relevo.guard_lease();

-- Whoever holds a lock that others wait for must not fall asleep on it: a client that is frozen or
-- cut off in the middle of such a transaction is ended by the server. Value in milliseconds.
create function relevo.stay_awake() returns void language sql volatile
begin atomic
  select set_config('idle_in_transaction_session_timeout', '5000', true);
end;

-- Whoever changes the epoch of leases first excludes the transactions that are fenced by them.
-- Ids are locked in rising order on every path, so that nobody waits in a circle.
create function relevo.lock_leases(ids integer[]) returns void language plpgsql volatile as $$
declare lease_id integer;
begin
  perform relevo.stay_awake();
  for lease_id in select unnest(ids) order by 1 loop
    perform pg_advisory_xact_lock(1380273155, lease_id);
  end loop;
end $$;

-- Answers the fences that are stale; the others are good until the transaction ends,
-- since a take-over needs the exclusive form of the lock. Two statements on purpose: what is read
-- after the lock must be younger than the lock. Above READ COMMITTED the snapshot is older, so the
-- rows are locked instead, which fails with a serialisation error if one has moved.
create function relevo.stale_fences(ids integer[], epochs bigint[])
returns table (stale_id integer, stale_epoch bigint) language plpgsql volatile as $$
declare lease_id integer;
begin
  perform relevo.stay_awake();
  for lease_id in select unnest(ids) order by 1 loop
    perform pg_advisory_xact_lock_shared(1380273155, lease_id);
  end loop;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform 1 from relevo.lease where id = any (ids) order by id for share;
  end if;
  return query
    select f.id, f.epoch from unnest(ids, epochs) as f (id, epoch)
    where not exists (
      select from relevo.lease l join relevo.host h on h.incarnation = l.owner
      where l.id = f.id and l.epoch = f.epoch
        and h.ended_at is null and h.lease_until > relevo.now());
end $$;

create table relevo.access_key (
  id            text primary key,
  name          text not null,
  kind          text not null check (kind in ('bearer', 'signing')),
  roles         text[] not null,
  scopes        text[] not null default '{}',
  secret_hash   bytea not null unique,
  secret_sealed bytea,
  created_at    timestamptz not null default relevo.now(),
  expires_at    timestamptz,
  last_used_at  timestamptz,
  revoked_at    timestamptz
);

create table relevo.setting (
  key        text primary key,
  value      jsonb not null,
  updated_at timestamptz not null default relevo.now()
);
