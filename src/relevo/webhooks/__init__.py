"""Webhooks: events of the log, sent to other services over HTTP.

    made = await app.webhooks.create("billing", "https://billing.example/hooks")
    made.secret     # shown this once; the receiver checks signatures with it

At least once, in order per subject, signed after Standard Webhooks, in the form of CloudEvents or
of Event Grid. A receiver that fails is tried again for days.
"""

from relevo.webhooks.model import Delivery, SecretRotated, Webhook, WebhookCreated
from relevo.webhooks.service import Webhooks

__all__ = ["Delivery", "SecretRotated", "Webhook", "WebhookCreated", "Webhooks"]
