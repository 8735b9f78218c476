"""Relevo for code without `await`: scripts, Flask, Django.

import relevo.sync
from shop import app, receipt                # the program whose jobs `relevo run shop:app` runs

client = relevo.sync.App(app)
job = client.submit(receipt, customer="ana", total=12)
print(job.wait(timeout=60))
"""

from relevo.sync.app import App
from relevo.sync.batches import Batch
from relevo.sync.containers import Container
from relevo.sync.jobs import Job
from relevo.sync.messages import Queue, Received, Subscription, Topic

__all__ = ["App", "Batch", "Container", "Job", "Queue", "Received", "Subscription", "Topic"]
