-- Rotates 64 bits to the left.
create or replace function relevo.rotate64(value bigint, bits integer) returns bigint
language sql immutable strict parallel safe
return (value << bits) | ((value >> (64 - bits)) & ((1::bigint << bits) - 1));
