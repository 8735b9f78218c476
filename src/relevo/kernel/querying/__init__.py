"""Queries over catalogued tables: two languages in, one model, one SQL planner, one answer format.

    options = odata_options.read(raw)                       the query part of a URL
    query = odata_options.query_of(options, table, request)  or fetchxml.parse(…)
    statement = planning.plan(query, catalogue, caller)     SQL with bound parameters
    page = answers.read(rows, statement.shape, …)           wire JSON

Nothing here does I/O: the caller runs the statement. Text of a request only ever chooses from
the catalogue or becomes a bound parameter.
"""
