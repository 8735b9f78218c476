-- Sends a message inside the caller's transaction, from any language; returns its id. It is there when that commits.
create or replace function relevo.send_message(
  entity text, body bytea, properties jsonb default '{}', priority integer default null, priority_class text default null,
  message_id text default null, session_id text default null, fairness_key text default null, subject text default null,
  correlation_id text default null, ttl interval default null, at timestamptz default null)
returns text language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  id text := coalesce(message_id, gen_random_uuid()::text);
  head jsonb := jsonb_strip_nulls(jsonb_build_object(
    'session_id', session_id, 'subject', subject, 'correlation_id', correlation_id));
begin
  if priority not between 0 and 9 then
    raise exception 'priority is %; it must be from 0 to 9', priority using errcode = 'RV011';
  end if;
  if properties is not null and properties <> '{}' then
    if jsonb_typeof(properties) <> 'object' then
      raise exception 'properties is a JSON %, not an object', jsonb_typeof(properties) using errcode = 'RV011';
    elsif exists (select from jsonb_each(properties) as p where jsonb_typeof(p.value) in ('object', 'array')) then
      raise exception 'a property of a message is text, a number, true, false or null, not an object or an array' using errcode = 'RV011';
    end if;
    head := head || jsonb_build_object('properties', properties);
  end if;
  if octet_length(head::text) > 65536 then
    raise exception 'the properties and texts of a message have % bytes; at most 65536 are taken', octet_length(head::text)
      using errcode = 'RV014', hint = 'Put them into the body.';
  end if;
  return (relevo.arrive_messages(
    array[entity], array[body], array[0::smallint], array[id], array[priority::smallint], array[priority_class], array[fairness_key],
    array[session_id], array[extract(epoch from ttl)::float8], array[at],
    array[case when head <> '{}' then head::text end]))[1];
end $$;
