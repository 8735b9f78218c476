"""What Relevo's own tests and its users' tests stand on.

Fixtures come with the pytest plugin (`relevo_url`, `database`, `app`, `clock`, `cluster`); real
processes are killed, frozen and cut off through `Cluster`, `Proxy` and `FaultBoard`.
"""
