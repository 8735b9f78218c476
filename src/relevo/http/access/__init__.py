"""Authentication and authorisation: keys, signatures, tokens, roles."""
