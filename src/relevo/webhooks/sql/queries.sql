-- Webhooks and their deliveries.

-- name: lock_webhooks
-- Lets one caller at a time make a webhook, so that their number has a bound.
select pg_advisory_xact_lock(1380273171, 0);

-- name: count_webhooks
-- How many webhooks there are.
select count(*) from relevo.webhook;

-- name: insert_webhook
-- Makes a webhook; no row if the name is taken.
insert into relevo.webhook (id, name, url, format, types, filter, retry, state, since, validation_code, validation_until)
values ($1, $2, $3, $4, $5, $6, $7, $8, coalesce($9, relevo.now()), $10, relevo.now() + make_interval(secs => $11))
on conflict (name) do nothing
returning id;

-- name: insert_secret
-- Adds a secret to a webhook; again with the same id does nothing.
insert into relevo.webhook_secret (id, webhook_id, sealed) values ($1, $2, $3) on conflict (id) do nothing;

-- name: expire_secrets
-- Lets the secrets before this one sign for so many seconds more, and forgets those that no longer do.
with gone as (
  delete from relevo.webhook_secret where webhook_id = $1 and expires_at <= relevo.now()
)
update relevo.webhook_secret set expires_at = relevo.now() + make_interval(secs => $3)
where webhook_id = $1 and id <> $2 and (expires_at is null or expires_at > relevo.now() + make_interval(secs => $3))
returning expires_at;

-- name: signing_secrets
-- The secrets that sign now, the newest first.
select id, sealed from relevo.webhook_secret
where webhook_id = $1 and (expires_at is null or expires_at > relevo.now())
order by created_at desc, id desc;

-- name: list_webhooks
-- A page of webhooks by name, or the one of a name.
select w.*, relevo.now() as now,
       (select count(*) from (select from relevo.webhook_delivery d
                              where d.webhook_id = w.id and d.state = 'waiting' limit 1000) as few) as waiting,
       (select count(*) from (select from relevo.webhook_delivery d
                              where d.webhook_id = w.id and d.state = 'dead' limit 1000) as few) as dead,
       (select coalesce(json_agg(json_build_object('id', s.id, 'created_at', s.created_at, 'expires_at', s.expires_at)
                                 order by s.created_at desc, s.id desc), '[]')
        from relevo.webhook_secret s
        where s.webhook_id = w.id and (s.expires_at is null or s.expires_at > relevo.now())) as secrets
from relevo.webhook w
where w.name > $1 and ($2::text is null or w.name = $2)
order by w.name limit $3;

-- name: lock_webhook
-- A webhook by name, locked for a change.
select * from relevo.webhook where name = $1 for update;

-- name: update_webhook
-- Changes what a webhook sends, and where.
update relevo.webhook
set url = $2, format = $3, types = $4, filter = $5, retry = $6, state = $7, reason = $8, validation_code = $9,
    validation_until = relevo.now() + make_interval(secs => $10), revision = revision + 1, changed_at = relevo.now(),
    failures = 0, failing_since = null
where id = $1;

-- name: pause_webhook
-- Holds back deliveries; events go on being collected.
update relevo.webhook set state = 'paused', reason = $2, revision = revision + 1, changed_at = relevo.now() where id = $1;

-- name: delete_webhook
-- Removes a webhook with its deliveries.
delete from relevo.webhook where name = $1 returning id;

-- name: validate_webhook
-- Takes the answer to a validation event, from the receiver or from whoever opened its address. No row if the code is not the
-- present one or came too late; again is no error.
update relevo.webhook
set state = case when state = 'validating' then 'enabled' else state end, reason = null, revision = revision + 1
where name = $1 and validation_code = $2 and (state <> 'validating' or validation_until > relevo.now())
returning id;

-- name: wanted_webhooks
-- The webhooks that events are collected for, with the revision of what they want.
select id, name, revision from relevo.webhook where state <> 'disabled';

-- name: webhook_filters
-- What some webhooks want.
select id, name, revision, types, filter, since from relevo.webhook where id = any($1::uuid[]);

-- name: enqueue
-- Adds events for webhooks; one that is there already stays as it is.
insert into relevo.webhook_delivery (webhook_id, event_id, stripe, lsn, at, type, schema, subject, version, data)
select w.id, e.event_id, e.stripe, e.lsn, e.at, e.type, e.schema, e.subject, e.version, e.data
from unnest($1::uuid[], $2::text[], $3::integer[], $4::bigint[], $5::timestamptz[], $6::text[], $7::smallint[], $8::text[],
            $9::bigint[], $10::text[])
  as e (webhook_id, event_id, stripe, lsn, at, type, schema, subject, version, data)
join relevo.webhook w on w.id = e.webhook_id and w.state <> 'disabled' and e.at >= w.since
order by e.lsn, w.id
on conflict (webhook_id, lsn) do nothing;

-- name: sync_leases
-- Makes the missing leases of senders, and removes those of webhooks that are gone.
with unit as (
  select id from relevo.unit where kind = $1 and name = $2
), removed as (
  delete from relevo.lease l using unit where l.unit_id = unit.id
    and not exists (select from relevo.webhook w where w.id::text = l.name)
)
insert into relevo.lease (unit_id, name)
select unit.id, w.id::text from unit cross join relevo.webhook w
where not exists (select from relevo.lease l where l.unit_id = unit.id and l.name = w.id::text)
on conflict (unit_id, name) do nothing
returning id;

-- name: oldest_webhook
-- From when on events are wanted; null if there is no webhook.
select min(since) from relevo.webhook;

-- name: due_webhooks
-- Which of some webhooks have something to do, or were changed: one statement for all idle senders of a host.
select w.id, w.revision
from unnest($1::uuid[], $2::integer[]) as seen (id, revision) join relevo.webhook w on w.id = seen.id
where w.revision <> seen.revision or w.state = 'validating' or w.state = 'enabled' and exists (
  select from relevo.webhook_delivery d where d.webhook_id = w.id and d.state = 'waiting' and d.due <= relevo.now());

-- name: webhook_to_send
-- What a sender needs of its webhook.
select w.*, relevo.now() as now, (select l.incarnation::text from relevo.event_log l) as log from relevo.webhook w where w.id = $1;

-- name: due_deliveries
-- The next events of a webhook by LSN, except those that follow one of their subject that waits for another attempt. The events of a
-- subject may come from several pipelines, which are collected side by side. So one from a pipeline is sent only when all
-- pipelines are collected up to it: its predecessors are then here.
with place as (
  select p.key::integer as stripe, p.value::bigint as lsn
  from relevo.unit u join relevo.lease l on l.unit_id = u.id join relevo.feed_lease f on f.lease_id = l.id
  cross join lateral jsonb_each_text(relevo.lease_position(l.position, f.cleared)) as p
  where u.kind = 'feed' and u.name = $3
), collected as (
  select min(p.lsn) as lsn
  from place p join relevo.event_stripe s on s.id = p.stripe and s.kind = 'pipeline'
  cross join lateral (select max(b.last) as last from relevo.event_batch b where b.stripe = p.stripe) as head
  where head.last > p.lsn
)
select d.id, d.event_id, d.stripe, d.lsn, d.at, d.type, d.schema, d.subject, d.version, d.data, d.attempts
from relevo.webhook_delivery d join relevo.event_stripe s on s.id = d.stripe
where d.webhook_id = $1 and d.state = 'waiting' and d.due <= relevo.now()
  and (s.kind = 'subject' or d.lsn <= coalesce((select lsn from collected), 9223372036854775807))
  and not exists (
    select from relevo.webhook_delivery e
    where e.webhook_id = d.webhook_id and e.subject = d.subject and e.lsn < d.lsn and e.state = 'waiting' and e.due > relevo.now())
order by d.lsn limit $2;

-- name: settle
-- Writes down attempts, and answers those that became dead letters. Again changes nothing more.
with attempt as (
  select * from unnest($1::bigint[], $2::text[], $3::integer[], $4::float8[], $5::integer[], $6::text[])
    as a (id, state, attempts, wait, status, error)
), settled as (
  update relevo.webhook_delivery d
  set state = a.state, attempts = a.attempts, due = relevo.now() + make_interval(secs => a.wait), status = a.status,
      error = a.error, last_attempt_at = relevo.now()
  from attempt a where d.id = a.id and d.state = 'waiting'
  returning d.id, d.state, d.type, d.subject, d.attempts, d.error
)
select * from settled where state = 'dead';

-- name: note_attempts
-- Notes how a webhook's attempts end: failures since the last success, the last error, and whether one succeeded.
update relevo.webhook
set failures = $2, last_attempt_at = relevo.now(), last_error = coalesce($3, last_error),
    last_success_at = case when $4::boolean then relevo.now() else last_success_at end,
    failing_since = case when $2 = 0 then null when $4 then relevo.now() else coalesce(failing_since, relevo.now()) end
where id = $1
returning relevo.now() - failing_since > make_interval(secs => $5) as too_long;

-- name: disable_webhook
-- Ends deliveries to a webhook that takes them, for a reason.
update relevo.webhook set state = 'disabled', reason = $2, revision = revision + 1, changed_at = relevo.now()
where id = $1 and state <> 'disabled'
returning name, revision;

-- name: list_deliveries
-- A page of a webhook's deliveries of a state, by id.
select id, event_id, type, subject, version, at, state, attempts, due, last_attempt_at, status, error
from relevo.webhook_delivery
where webhook_id = (select id from relevo.webhook where name = $1) and state = $2 and id > $3
order by id limit $4;

-- name: replay_deliveries
-- Lets deliveries of a webhook be tried again as if they were new: one, or the first of a state.
update relevo.webhook_delivery set state = 'waiting', attempts = 0, due = relevo.now()
where id in (
  select id from relevo.webhook_delivery
  where webhook_id = (select id from relevo.webhook where name = $1)
    and case when $2::bigint is null then state = $3 else id = $2 end
  order by id limit $4 for update)
returning id;

-- name: discard_deliveries
-- Removes deliveries of a webhook that are dead or wait: one, or the first of a state.
delete from relevo.webhook_delivery
where id in (
  select id from relevo.webhook_delivery
  where webhook_id = (select id from relevo.webhook where name = $1)
    and case when $2::bigint is null then state = $3 else id = $2 end
  order by id limit $4 for update)
returning id;

-- name: forget_deliveries
-- Removes deliveries of a state that ended longer ago than so many seconds.
delete from relevo.webhook_delivery where id in (
  select d.id from relevo.webhook w cross join lateral (
    select id, last_attempt_at from relevo.webhook_delivery
    where webhook_id = w.id and state = $1 and state <> 'waiting' order by id limit $3) as d
  where d.last_attempt_at < relevo.now() - make_interval(secs => $2)
  limit $3)
returning id;

-- name: overfull_webhooks
-- Webhooks for which more events wait, or are dead, than there may be.
select w.id from relevo.webhook w
where w.state <> 'disabled' and (
  select count(*) from (select from relevo.webhook_delivery d
                        where d.webhook_id = w.id and d.state <> 'delivered' limit $1 + 1) as few) > $1;

-- name: standings
-- How webhooks stand: their waiting events, dead letters, and the age of the oldest waiting event.
select w.name, d.waiting, d.dead,
       extract(epoch from relevo.now() - d.oldest)::float8 as lag
from relevo.webhook w cross join lateral (
  select count(*) filter (where state = 'waiting') as waiting, count(*) filter (where state = 'dead') as dead,
         min(at) filter (where state = 'waiting') as oldest
  from relevo.webhook_delivery where webhook_id = w.id and state <> 'delivered') as d
order by w.name;
