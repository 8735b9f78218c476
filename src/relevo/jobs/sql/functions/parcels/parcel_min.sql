-- From how many jobs on a claim is a parcel: fewer are found by their keys and indexes.
create or replace function relevo.parcel_min() returns integer language sql immutable return 100;
