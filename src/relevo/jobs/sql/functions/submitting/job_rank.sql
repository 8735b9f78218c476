-- The place of a job in the order of claims: its time in microseconds, and a minute earlier for each step of priority in a lane
-- that orders by it. Inlined.
create or replace function relevo.job_rank(at timestamptz, by_priority boolean, priority integer) returns bigint language sql stable
return (extract(epoch from at) * 1000000)::bigint - case when by_priority then priority * 60000000::bigint else 0 end;
