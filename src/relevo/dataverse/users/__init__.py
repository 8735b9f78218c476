"""Users, teams and business units: whose rows are whose, and how far a right reaches."""
