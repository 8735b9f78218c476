"""Commands for users and bulk deletes."""
