-- How many jobs a parcel has that waits: a host that wants fewer makes rows of all of them.
create or replace function relevo.parcel_max() returns integer language sql immutable return 250;
