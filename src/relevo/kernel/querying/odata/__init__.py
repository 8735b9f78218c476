"""OData query options, read into the query model."""
