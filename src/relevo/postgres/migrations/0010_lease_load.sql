-- description: how busy a lease is, how a unit is balanced, and which host a lease keeps away from
-- locks: relevo.unit and relevo.lease for a moment; both are small and no row is written again

alter table relevo.unit
  add column strategy text not null default 'equal' check (strategy in ('equal', 'load'));

-- What its owner measured, smoothed over windows of 10 s. Zero in an idle unit, where nobody writes.
alter table relevo.lease
  add column busy        double precision not null default 0,
  add column changes_s   double precision not null default 0,
  add column bytes_s     double precision not null default 0,
  add column avoid       uuid,
  add column avoid_until timestamptz,
  add check ((avoid is null) = (avoid_until is null));
