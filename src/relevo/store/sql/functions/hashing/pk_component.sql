-- The canonical partition key, as Relevo's other writers make it: 1 and 1.0 are one key, numbers
-- that are no exact integers are the bytes of their double, a path that the item lacks is {}.
create or replace function relevo.pk_component(value jsonb) returns text language sql immutable parallel safe
return case when value is null then '{}'
            when jsonb_typeof(value) = 'number' and abs(value::numeric) <= 9007199254740992
                 and value::numeric = trunc(value::numeric) then trunc(value::numeric)::text
            when jsonb_typeof(value) = 'number' then '{"n":"' || encode(float8send(value::float8), 'hex') || '"}'
            else value::text end;
