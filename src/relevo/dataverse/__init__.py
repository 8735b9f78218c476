"""What exists for the Dataverse surface: users, bulk operations and the web API."""
