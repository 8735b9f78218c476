-- Access keys; every key belongs to a user.
-- after: users

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
  revoked_at    timestamptz,
  user_id       uuid not null references relevo.system_user,
  max_class     text,  -- the highest class that it sends messages with; null: any
  max_class_mode text check (max_class_mode in ('reject', 'downgrade')),
  constraint access_key_max_class check ((max_class is null) = (max_class_mode is null))
);

\ir functions/give_key_a_user.sql
create trigger access_key_user before insert on relevo.access_key
  for each row when (new.user_id is null) execute function relevo.give_key_a_user();
