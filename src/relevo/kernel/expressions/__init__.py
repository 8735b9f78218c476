"""Expressions: one tree, a front end per language, and two back ends.

    evaluate = powerfx.compiled("If(job.Total > 5, 10, 1)")     text to tree to function
    evaluate({"job": {"Total": 7}})                             10

`tree` has the nodes and their rules. Back ends: `to_python` makes functions, `to_sql` makes clauses
with bound parameters. Front ends: `powerfx` reads the router's rule language, `sqlfilter` and
`sqlaction` read the rules of subscriptions; `kernel.querying` has those of queries.

A wrong text raises `InvalidExpression`. A correct expression raises `ExpressionFailed` if it
has no result for the values it meets.
"""
