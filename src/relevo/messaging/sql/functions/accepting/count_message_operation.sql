-- Counts sends and settlements that join a transaction of a caller's, and refuses the one after the hundredth. The counter is a setting of
-- the transaction, so it ends with it, and works with any driver and pooler.
create or replace function relevo.count_message_operation() returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  done integer := coalesce(nullif(current_setting('relevo.message_operations', true), ''), '0')::integer;
begin
  if done >= 100 then
    raise exception 'the transaction has 100 sends and settlements of messages already, and takes no more'
      using errcode = 'RV015', hint = 'Send many messages by one call, or divide the work into several transactions.';
  end if;
  perform set_config('relevo.message_operations', (done + 1)::text, true);
end $$;
