"""Priority messaging: queues, topics and subscriptions whose priorities mean something."""

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

__all__ = [
    "Aging",
    "CorrelationRule",
    "Deadline",
    "Fifo",
    "Message",
    "Preemption",
    "PriorityClass",
    "Receipt",
    "Scaling",
    "SqlRule",
    "Strict",
    "Weighted",
]
