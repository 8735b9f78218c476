-- name: feed_units
-- Units that read the feeds of containers that are there, by name; a page of them.
select u.name as unit, c.name as container, f.mode
from relevo.unit u
join relevo.feed_unit f on f.unit_id = u.id
join relevo.container c on c.id = f.container_id
where u.kind = 'feed' and u.name > $1
order by u.name limit $2;

-- name: owners_in_unit
-- The owners of some jobs that are in a business unit.
select distinct j.owner from relevo.jobs j join relevo.owner o on o.id = j.owner
where j.id = any ($1::uuid[]) and o.unit = $2;

-- name: handler_exists
-- Whether a host has had a handler of this name.
select exists (select from relevo.job_handler where name = $1);

-- name: published_rules
-- The published rules of duplicates of a container.
select name from relevo.duplicate_rule where container = $1 and published_at is not null order by name limit 10;
