"""FetchXML documents, read into the one query."""
