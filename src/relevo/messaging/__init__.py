"""Priority messaging: queues, topics and subscriptions whose priorities mean something."""

from relevo.messaging.batches import MessageBatch
from relevo.messaging.core.explaining import MessageExplanation
from relevo.messaging.entities import EntityRecord
from relevo.messaging.handles import PriorityTopic, Queue, Subscription, Topic
from relevo.messaging.model import (
    Aging,
    CorrelationRule,
    Deadline,
    Fifo,
    Message,
    Preemption,
    PriorityClass,
    Receipt,
    Scaling,
    SqlRule,
    Strict,
    Weighted,
)
from relevo.messaging.operating.consumers import ConsumersView, Replica
from relevo.messaging.operating.describing import (
    EntityDescription,
    MessageCounts,
    MessageRates,
)
from relevo.messaging.operating.peeking import PeekedMessage
from relevo.messaging.running.context import Preempted, Received
from relevo.messaging.service import Messaging
from relevo.messaging.sessions import Session, SessionInfo

__all__ = [
    "Aging",
    "ConsumersView",
    "CorrelationRule",
    "Deadline",
    "EntityDescription",
    "EntityRecord",
    "Fifo",
    "Message",
    "MessageBatch",
    "MessageCounts",
    "MessageExplanation",
    "MessageRates",
    "Messaging",
    "PeekedMessage",
    "Preempted",
    "Preemption",
    "PriorityClass",
    "PriorityTopic",
    "Queue",
    "Receipt",
    "Received",
    "Replica",
    "Scaling",
    "Session",
    "SessionInfo",
    "SqlRule",
    "Strict",
    "Subscription",
    "Topic",
    "Weighted",
]
