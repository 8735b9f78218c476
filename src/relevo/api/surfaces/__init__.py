"""The surfaces of the API: for each prefix its commands, handlers and manners."""
