"""Queries over catalogued tables: two languages in, one model, one SQL planner, one answer format.

    options = odata_options.read(text)                  the query part of a URL
    query = odata_options.query(options, …)             or fetchxml.parse(…)
    statement = planning.plan(query, catalogue, caller) SQL with bound parameters
    answers.page(rows, statement.shape, …)              wire JSON

Nothing here does I/O: whoever calls runs the statement. Text of a request only ever chooses from
the catalogue or becomes a bound parameter (A23).
"""
