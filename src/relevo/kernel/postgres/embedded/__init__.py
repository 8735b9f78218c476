"""The PostgreSQL that Relevo brings along: its folder, its account, its settings, its life."""
