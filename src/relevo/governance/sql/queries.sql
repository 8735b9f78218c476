-- name: kit_hosts
-- Whether a host lives, and whether one serves the actors of the governance kit.
with live as materialized (
  select incarnation from relevo.host where ended_at is null and lease_until > relevo.now()
)
select exists (select from live) as any_lives, exists (
  select from relevo.unit u join relevo.member m on m.unit_id = u.id join live on live.incarnation = m.host
  where u.kind = 'actors' and u.name = $1
) as is_served;

-- name: ask_for_kit
-- Notes that some program uses the kit: hosts serve it from now on.
insert into relevo.setting (key, value) values ('governance', '{"is_used": true}') on conflict (key) do nothing;

-- name: is_kit_used
-- Whether some program uses the kit.
select exists (select from relevo.setting where key = 'governance');

-- name: host_names
-- The names of the hosts that have or had some lives.
select incarnation, name from relevo.host where incarnation = any($1::uuid[]);
