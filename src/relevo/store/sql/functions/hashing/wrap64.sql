-- 64-bit arithmetic that wraps, as MurmurHash3 needs it.
create or replace function relevo.wrap64(value numeric) returns bigint language sql immutable strict parallel safe
return (mod(mod(value, 18446744073709551616) + 18446744073709551616 + 9223372036854775808,
            18446744073709551616) - 9223372036854775808)::bigint;
