-- Whoever holds a lock that others wait for must not fall asleep on it: a client that is frozen or
-- cut off in the middle of such a transaction is ended by the server. Value in milliseconds.
create or replace function relevo.stay_awake() returns void language sql volatile
begin atomic
  select set_config('idle_in_transaction_session_timeout', '5000', true);
end;
