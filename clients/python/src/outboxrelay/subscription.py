"""A durable subscription: its events are pulled, and acknowledged once they are handled."""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from .gateway import Backoff, Outbox, OutboxError

_WAIT = 5  # seconds that the gateway waits for events: how long a stop takes where there are none


@dataclass(frozen=True)
class Nacked:
    """What becomes of an event that failed: it comes again at a time (RFC 3339), or it is a dead letter."""

    attempt: int
    again_at: str | None
    dead: bool


@dataclass(eq=False)
class Event:
    """An event that is leased to this process. What is neither acknowledged nor refused comes again after the lease."""

    _subscription: Subscription = field(repr=False)
    id: str
    position: str
    token: str
    attempt: int
    type: str
    key: str | None  # the aggregate's id
    order_key: str | None  # events with the same one stay in order: those of a tenant's aggregate
    tenant: str
    occurred_at: str
    payload: Any
    metadata: Mapping[str, Any] | None
    acknowledged: bool = False

    def ack(self) -> bool:
        """Tells that the event is handled. False: the lease had ended before, so the event comes again."""
        self.acknowledged = not self._subscription.ack([self])
        return self.acknowledged

    def nack(self, error: object, delay: str | None = None, reason: str | None = None) -> Nacked | None:
        """Tells that it failed, and when to try again (`10s`; the subscription knows). None: the lease had ended.

        `reason` is that of the dead letter: DeliveryFailed (default), HandlerMissing, HandlerTimeout, or
        DeserializationFailed or DuplicateEvent, with which the event is a dead letter at once.
        """
        body = {"id": self.id, "token": self.token, "error": str(error)[:1000]}
        body |= {name: value for name, value in (("delay", delay), ("reason", reason)) if value is not None}
        try:
            answer = self._subscription.post("nack", body)
        except OutboxError as refusal:
            if refusal.status == 409:
                return None
            raise
        return Nacked(answer["attempt"], answer["again_at"], answer["dead"])

    @property
    def lane(self) -> str:
        """What stays in order; an event without a key, by itself."""
        return self.order_key or self.id


_FIELDS = [f.name for f in fields(Event) if f.name not in ("_subscription", "acknowledged")]


class Subscription:
    """A durable subscription of a gateway, which any number of processes share. It is safe for several threads."""

    def __init__(self, outbox: Outbox, name: str) -> None:
        self._outbox = outbox
        self._path = f"/v1/subscriptions/{urllib.parse.quote(name, safe='')}"

    def create(
        self, types: Sequence[str], start: str = "latest", lease: str | None = None, max_attempts: int | None = None
    ) -> None:
        """Makes the subscription, where it is not there. It begins at the `earliest` event, the `latest`, or a time."""
        body = {"types": list(types), "from": start, "lease": lease, "max_attempts": max_attempts}
        self._outbox.request("PUT", self._path, {name: value for name, value in body.items() if value is not None})

    def ack(self, events: Iterable[Event]) -> dict[str, str]:
        """Acknowledges events at once. Returns the ids of those that come again, with the reason (`lapsed`)."""
        answer = self.post("ack", {"events": [{"id": e.id, "token": e.token} for e in events]})
        return {refused["id"]: refused["reason"] for refused in answer["refused"]}

    def post(self, what: str, body: object) -> Any:
        return self._outbox.request("POST", f"{self._path}/{what}", body)

    def events(self, stop: threading.Event | None = None, most: int = 10) -> Iterator[Event]:
        """The events, one after the other, until `stop` is set; `ack` or `nack` each.

        One that is not acknowledged holds back what follows of its key: that comes again behind it.
        """
        stop = stop or threading.Event()
        for batch in self.batches(lambda: most, stop):
            held = set()
            for event in batch:
                if stop.is_set():
                    return
                if event.lane not in held:
                    yield event
                    if not event.acknowledged:
                        held.add(event.lane)

    def batches(self, room: Callable[[], int], stop: threading.Event) -> Iterator[list[Event]]:
        """Leases events, as many as there is room for, until `stop` is set. A gateway that is away is waited for."""
        backoff = Backoff()
        while not stop.is_set():
            most = room()
            try:
                answer = self._outbox.request("GET", f"{self._path}/events?wait={_WAIT}s&most={most}")
            except OutboxError as error:
                backoff.wait(stop, error)
                continue
            backoff.reset()
            yield [Event(self, **{name: event.get(name) for name in _FIELDS}) for event in answer["events"]]

    def consume(
        self, handler: Callable[[Event], object], concurrency: int = 8, stop: threading.Event | None = None
    ) -> None:
        """Calls a handler for each event, in several threads and in the order of each key, until `stop` is set.

        What it returns from is acknowledged, what it raises for is refused and comes again. Raises OutboxError for what
        waiting does not cure. In either case it first handles what it has in hand.
        """
        from .consumer import Consumer

        Consumer(self, handler, concurrency, stop or threading.Event()).run()
