-- The key of the gate that counts an owner's jobs in a lane.
create or replace function relevo.job_owner_key(lane text, owner uuid) returns text language sql immutable parallel safe
begin atomic
  select 'o' || lane || ' ' || owner;
end;
