-- The time after waiting for a lock inside of a statement; `relevo.now()` is as old as
-- the statement, so that stamps in the order of locks would not be in the order of time.
create or replace function relevo.now_after_waiting() returns timestamptz language sql volatile
begin atomic
  select greatest(clock_timestamp() + c.shift, c.mark) from relevo.clock c;
end;
