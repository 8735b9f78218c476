-- name: accept
-- Accepts messages that were evaluated with versions of entities; see the function.
select * from relevo.accept_messages($1::integer[], $2::bigint[], $3::integer[], $4::text[], $5::bytea[], $6::smallint[],
  $7::timestamptz[], $8::integer[], $9::integer[], $10::smallint[], $11::smallint[], $12::smallint[], $13::integer[],
  $14::float8[], $15::timestamptz[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::smallint[],
  $22::bigint[], $23::integer[]);
