-- Shifts 64 bits to the right, filling with zeros.
create or replace function relevo.shift64(value bigint, bits integer) returns bigint
language sql immutable strict parallel safe
return (value >> bits) & ((1::bigint << (64 - bits)) - 1);
