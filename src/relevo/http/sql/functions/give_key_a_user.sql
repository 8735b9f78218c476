-- A key that names no user gets one of its own, also from a program that knows nothing of users yet.
create or replace function relevo.give_key_a_user() returns trigger language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
  insert into relevo.system_user (name) values (new.name) returning id into new.user_id;
  return new;
end $$;
