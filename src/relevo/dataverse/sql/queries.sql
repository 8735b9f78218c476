-- name: owners_in_unit
-- Those owners of some jobs that are in a business unit.
select distinct j.owner from relevo.jobs j join relevo.owner o on o.id = j.owner
where j.id = any ($1::uuid[]) and o.unit = $2;

-- name: handler_exists
-- Whether any host has registered a handler of this name.
select exists (select from relevo.job_handler where name = $1);

-- name: published_rules
-- The published duplicate rules of a container.
select name from relevo.duplicate_rule where container = $1 and published_at is not null order by name limit 10;
