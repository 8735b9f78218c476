-- name: load_actors
-- What is stored of actors, in the order asked for; documents beyond the bytes of an answer are left out, but for the first.
with found as (
  select g.n, a.revision, a.incarnation, a.schema, a.quarantine_error, a.document,
         sum(octet_length(a.document)) over (order by g.n) as bytes
  from unnest($1::text[]) with ordinality as g (id, n) left join relevo.actor a on a.id = g.id
)
select f.revision, f.incarnation, f.schema, f.quarantine_error,
       case when f.n = 1 or f.bytes <= $2 then f.document end as document,
       f.document is not null and f.n > 1 and f.bytes > $2 as is_left_out
from found f order by f.n;

-- name: commit_turns
-- Writes the turns of a batch; the rows are those that were refused.
select nth, outcome from relevo.commit_turns(
  $1::bigint, $2::integer[], $3::bigint[],
  $4::integer[], $5::text[], $6::text[], $7::integer[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[],
  $12::boolean[], $13::boolean[], $14::integer[], $15::bytea[],
  $16::integer[], $17::bigint[],
  $18::integer[], $19::text[], $20::text[], $21::timestamptz[],
  $22::integer[], $23::text[], $24::text[], $25::text[], $26::bytea[],
  $27::integer[], $28::text[], $29::text[], $30::integer[], $31::text[],
  $32::timestamptz[], $33::text[], $34::bytea[], $35::bytea[], $36::integer[],
  $37::integer[], $38::text[], $39::text[], $40::text[], $41::bytea[], $42::bytea[],
  $43::integer[], $44::text[], $45::text[], $46::text[], $47::integer[],
  $48::text[], $49::bytea[], $50::text[], $51::text[], $52::integer[], $53::text[]);

-- name: actor_entry
-- The value of an entry of a map.
select value from relevo.actor_entry where actor = $1 and map = $2 and key = $3;

-- name: actor_entries
-- The entries of a map after a key.
select key, value from relevo.actor_entry where actor = $1 and map = $2 and key > $3 order by key limit $4::integer + 1;

-- name: recorded_call
-- The recorded answer of a call.
select call_id, method, digest, answer from relevo.actor_call where actor = $1 and call_id = $2;
