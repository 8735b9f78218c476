-- The largest size of a waiting parcel; a host with less room turns it into rows.
create or replace function relevo.parcel_max() returns integer language sql immutable return 250;
