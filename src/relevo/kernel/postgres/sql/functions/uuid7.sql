-- Time-ordered keys (RFC 9562), also on servers that do not have them.
create or replace function relevo.uuid7() returns uuid language sql volatile parallel safe
begin atomic
  select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
    52, 1), 53, 1), 'hex')::uuid;
end;
