"""Schedules that handlers declare: `@app.job("report", cron="0 3 * * *")`.

Hosts compare what their handlers declare with what is stored when they start. A schedule keeps one
waiting row of its series, as a series that was submitted does.
"""
