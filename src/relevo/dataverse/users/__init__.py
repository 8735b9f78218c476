"""Users, teams and business units: owners of rows, and the reach of rights."""
