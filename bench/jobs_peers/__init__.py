"""Other queues on PostgreSQL, measured on the same server as ours.

    python -m bench.jobs_peers                      all of them
    python -m bench.jobs_peers pg-boss --jobs 2000  one, quickly

They are installed outside the repository: --folder, BENCH_PEERS_FOLDER, or the user's cache.
"""

from bench.jobs_peers.install import PEERS, Unavailable, default_folder
from bench.jobs_peers.run import HOW, measure

__all__ = ["HOW", "PEERS", "Unavailable", "default_folder", "measure"]
