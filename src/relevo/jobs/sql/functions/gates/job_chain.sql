-- The chain of jobs with a token: one per owner, or one for all owners if the lane shares tokens. Jobs without an owner
-- have one, too. (It is inlined: nothing in it depends on the session.)
create or replace function relevo.job_chain(token text, owner uuid, shared boolean) returns text language sql immutable parallel safe
return case
  when token is null or token = '' then null
  when owner is null or shared then 't' || token
  else 'u' || owner::text || ' ' || token end;
