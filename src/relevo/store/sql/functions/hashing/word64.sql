-- Little-endian bytes as a number; bytes past the end count as zero.
create or replace function relevo.word64(data bytea, start integer) returns bigint
language sql immutable strict parallel safe
return (select coalesce(bit_or(get_byte(data, i)::bigint << (8 * (i - start))), 0)
        from generate_series(start, least(start + 7, length(data) - 1)) i);
