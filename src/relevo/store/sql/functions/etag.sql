-- The version of an item as callers see it.
create or replace function relevo.etag(lsn bigint, ordinal integer) returns text language sql immutable parallel safe
return '"' || to_hex(lsn) || '-' || ordinal || '"';
