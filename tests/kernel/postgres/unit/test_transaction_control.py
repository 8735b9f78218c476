from __future__ import annotations

import pytest

from relevo.kernel.postgres.handler_transactions import control_in


@pytest.mark.parametrize(
    "sql",
    [
        "commit", "COMMIT;", " Commit work", "commit and chain", "end", "END TRANSACTION", "abort",
        "rollback", "rollback transaction", "rollback and no chain", "begin",
        "BEGIN ISOLATION LEVEL SERIALIZABLE", "start transaction read only",
        "prepare transaction 'x'", "commit prepared 'x'", "/* a */ commit -- b", "-- a\ncommit",
        "select 1; commit", "select ';'; rollback; select 2", "select E'\\'; '; commit",
        "select $$;$$; commit", "select $a$ $$ $a$; commit", 'select 1 as ";"; commit',
    ],
)  # fmt: skip
def test_what_begins_or_ends_a_transaction_is_found(sql: str) -> None:
    assert control_in(sql) is not None


@pytest.mark.parametrize(
    "sql",
    [
        "select 1", "savepoint a", "rollback to a", "ROLLBACK TO SAVEPOINT a",
        "release savepoint a", "rollback work to savepoint a", "insert into t values ('; commit;')",
        "select 'begin'",
        "select case when true then 1 end", "do $$ begin perform 1; end $$",
        "prepare x as select 1",
        "select E'\\'; commit; '", "select $a$; commit; $a$", "-- commit\nselect 1",
        "/* ; commit; */ select 1", 'select 1 as "; commit;"', "update t set start = 1",
        "create function f() returns int language sql as 'select 1; commit'",
    ],
)  # fmt: skip
def test_savepoints_and_texts_are_no_control(sql: str) -> None:
    assert control_in(sql) is None
