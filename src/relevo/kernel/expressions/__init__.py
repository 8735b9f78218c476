"""Expressions: one tree, a front end per language, and two back ends.

    evaluate = powerfx.compiled("If(job.Total > 5, 10, 1)")     text to tree to function
    evaluate({"job": {"Total": 7}})                             10

`tree` has the nodes and the rules they carry, `to_python` makes functions of them, `to_sql` clauses
with bound parameters, `powerfx` reads the router's rule language. `InvalidExpression` is raised
when an expression is written, `ExpressionFailed` when it meets values for which it has no result.
"""
