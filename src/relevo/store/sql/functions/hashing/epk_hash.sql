-- The hash of one component of a partition key: MurmurHash3 x64 128, seed 0,
-- bytes reversed, first byte AND 3F, upper-case hex.
create or replace function relevo.epk_hash(data bytea) returns text language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp as $$
declare
  c1 constant numeric := -8663945395140668459;
  c2 constant numeric := 5545529020109919103;
  h1 bigint := 0;
  h2 bigint := 0;
  size constant integer := length(data);
  padded constant bytea := data || '\x00000000000000000000000000000000';
  place integer := 0;
  k1 bigint;
  k2 bigint;
  digest bytea;
begin
  loop
    k1 := relevo.wrap64(relevo.word64(padded, place) * c1);
    k1 := relevo.wrap64(relevo.rotate64(k1, 31) * c2);
    k2 := relevo.wrap64(relevo.word64(padded, place + 8) * c2);
    k2 := relevo.wrap64(relevo.rotate64(k2, 33) * c1);
    if place + 16 <= size then
      h1 := relevo.wrap64((relevo.wrap64(relevo.rotate64(h1 # k1, 27)::numeric + h2)) * 5::numeric + 1390208809);
      h2 := relevo.wrap64((relevo.wrap64(relevo.rotate64(h2 # k2, 31)::numeric + h1)) * 5::numeric + 944331445);
      place := place + 16;
    else
      h1 := h1 # k1 # size;
      h2 := h2 # k2 # size;
      exit;
    end if;
  end loop;
  h1 := relevo.wrap64(h1::numeric + h2);
  h2 := relevo.wrap64(h2::numeric + h1);
  h1 := relevo.finish64(h1);
  h2 := relevo.finish64(h2);
  h1 := relevo.wrap64(h1::numeric + h2);
  h2 := relevo.wrap64(h2::numeric + h1);
  digest := int8send(h2) || int8send(h1);
  return upper(encode(set_byte(digest, 0, get_byte(digest, 0) & 63), 'hex'));
end $$;
