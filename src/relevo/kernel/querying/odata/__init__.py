"""OData query options, read into the one query."""
