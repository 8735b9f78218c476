"""FetchXML documents, read into the query model."""
