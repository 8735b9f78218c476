"""The Dataverse web API, and the operations on users and bulk deletes."""
