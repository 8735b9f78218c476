-- The smallest number of jobs that become a parcel; fewer are cheaper as rows.
create or replace function relevo.parcel_min() returns integer language sql immutable return 100;
