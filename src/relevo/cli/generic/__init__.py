"""A command for every operation: from the fields of a request to options and back."""
