-- Eight little-endian bytes as a number. An expression without FROM, since PostgreSQL puts such
-- functions in the place of their calls; there are two of them for each 16 bytes of a key.
create or replace function relevo.word64(data bytea, start integer) returns bigint
language sql immutable strict parallel safe
return get_byte(data, start)::bigint | (get_byte(data, start + 1)::bigint << 8)
     | (get_byte(data, start + 2)::bigint << 16) | (get_byte(data, start + 3)::bigint << 24)
     | (get_byte(data, start + 4)::bigint << 32) | (get_byte(data, start + 5)::bigint << 40)
     | (get_byte(data, start + 6)::bigint << 48) | (get_byte(data, start + 7)::bigint << 56);
