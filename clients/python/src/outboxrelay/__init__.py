"""Durable subscriptions of an Outbox gateway. `outboxrelay.postgres` writes events."""

from .gateway import Outbox, OutboxError
from .subscription import Event, Nacked, Subscription

__all__ = ["Event", "Nacked", "Outbox", "OutboxError", "Subscription"]
