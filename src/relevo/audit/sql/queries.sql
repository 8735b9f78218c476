-- The audit.

-- name: begin_entry
-- Stores that an operation is about to run.
insert into relevo.audit (by_id, by_name, operation, resource, reason, caller) values ($1, $2, $3, $4, $5, $6) returning id;

-- name: end_entry
-- Stores how an operation has ended; again changes nothing.
update relevo.audit set outcome = $2, resource = $3, ended_at = relevo.now() where id = $1 and outcome is null
returning id;

-- name: list_entries
-- A page of the audit, the latest first.
select id, at, by_id, by_name, operation, resource, reason, caller, outcome, ended_at
from relevo.audit
where ($1::bigint is null or id < $1)
  and ($2::text is null or by_id = $2)
  and ($3::text is null or operation = $3 or starts_with(operation, $3 || '.'))
  and ($4::text is null or resource like $4)
  and ($5::timestamptz is null or at >= $5)
  and ($6::timestamptz is null or at < $6)
  and ($7::text is null or caller = $7)
order by id desc limit $8;

-- name: forget_entries
-- Removes entries that are older than so many seconds.
delete from relevo.audit where id in (
  select id from relevo.audit where at < relevo.now() - make_interval(secs => $1) order by id limit $2)
returning id;
