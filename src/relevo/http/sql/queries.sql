-- Access keys, and the fingerprint of the master key that seals them.

-- name: lock_keys
-- One transaction at a time adds keys: the first key is made once, and signing keys are counted.
select pg_advisory_xact_lock(1380273156, 0), relevo.stay_awake();

-- name: key_census
-- The checks of a new key, read after the lock: keys ever made, signing keys, the time.
select count(*) as keys,
       count(*) filter (where kind = 'signing') as signing_keys_ever,
       count(*) filter (where kind = 'signing' and revoked_at is null
                          and (expires_at is null or expires_at > relevo.now())) as signing_keys,
       relevo.now() as now
from relevo.access_key;

-- name: insert_key
-- A new key, by default of a user of its own; the secret itself is not stored, only its hash and, for signing keys, the sealed form.
insert into relevo.access_key
  (id, name, kind, roles, scopes, secret_hash, secret_sealed, expires_at, user_id, max_class, max_class_mode)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
returning id, name, kind, roles, scopes, created_at, expires_at, last_used_at, revoked_at, user_id, max_class, max_class_mode,
          'active' as state;

-- name: key_by_hash
-- Whether a preset secret is known, and whether it still counts.
select id, revoked_at is null and (expires_at is null or expires_at > relevo.now()) as active
from relevo.access_key where secret_hash = $1;

-- name: find_keys
-- Valid keys by the hashes of bearer tokens and, if wanted, all signing keys; and the time.
select t.now, k.id, k.name, k.roles, k.scopes, k.expires_at, k.secret_hash, k.secret_sealed, k.user_id, k.max_class, k.max_class_mode,
       coalesce(u.disabled, false) as disabled
from (select relevo.now() as now) t
left join (
  select * from relevo.access_key where secret_hash = any ($1::bytea[])
  union
  select * from relevo.access_key where $2 and kind = 'signing' and revoked_at is null
) k on k.revoked_at is null and (k.expires_at is null or k.expires_at > t.now)
left join relevo.system_user u on u.id = k.user_id;

-- name: disabled_identities
-- The disabled users among some subjects of tokens.
select identity from relevo.system_user where identity = any ($1::text[]) and disabled;

-- name: list_keys
-- One page of keys in the order they were made, after the given one.
select id, name, kind, roles, scopes, created_at, expires_at, last_used_at, revoked_at, user_id, max_class, max_class_mode,
       case when revoked_at is not null then 'revoked'
            when expires_at <= relevo.now() then 'expired' else 'active' end as state
from relevo.access_key
where $1::timestamptz is null or (created_at, id) > ($1, $2::text)
order by created_at, id
limit $3;

-- name: get_key
-- One key, without its secret.
select id, name, kind, roles, scopes, created_at, expires_at, last_used_at, revoked_at, user_id, max_class, max_class_mode,
       case when revoked_at is not null then 'revoked'
            when expires_at <= relevo.now() then 'expired' else 'active' end as state
from relevo.access_key where id = $1;

-- name: revoke_key
-- Ends a key; the first revocation counts, and a repeated one changes nothing.
update relevo.access_key set revoked_at = coalesce(revoked_at, relevo.now()) where id = $1
returning id, name, kind, roles, scopes, created_at, expires_at, last_used_at, revoked_at, user_id, max_class, max_class_mode,
          'revoked' as state;

-- name: note_key_use
-- Stores when keys were last used, except rows that are being written at this moment.
update relevo.access_key set last_used_at = relevo.now()
where id in (
  select id from relevo.access_key
  where id = any ($1::text[])
    and (last_used_at is null or last_used_at <= relevo.now() - make_interval(secs => $2))
  for no key update skip locked);

-- name: claim_fingerprint
-- Stores the first master key's fingerprint.
insert into relevo.setting (key, value) values ('master_key_fingerprint', to_jsonb($1::text))
on conflict (key) do nothing;

-- name: get_fingerprint
-- The fingerprint of the master key that signing keys are sealed with.
select value #>> '{}' from relevo.setting where key = 'master_key_fingerprint';

-- name: replace_fingerprint
-- A new master key takes over; only while nothing is sealed with the old one.
update relevo.setting set value = to_jsonb($1::text), updated_at = relevo.now()
where key = 'master_key_fingerprint';
