-- name: feed_units
-- Units that read the feeds of containers that are there, by name; a page of them.
select u.name as unit, c.name as container, f.mode
from relevo.unit u
join relevo.feed_unit f on f.unit_id = u.id
join relevo.container c on c.id = f.container_id
where u.kind = 'feed' and u.name > $1
order by u.name limit $2;
