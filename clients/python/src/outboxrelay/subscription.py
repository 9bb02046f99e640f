"""A durable subscription: its events are pulled, and acknowledged once they are handled."""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .gateway import Backoff, Outbox, OutboxError

_LONGEST_ERROR = 1000  # characters of what is kept with an event that failed


@dataclass(frozen=True)
class Nacked:
    """What becomes of an event that failed: it comes again at a time, or it is a dead letter."""

    attempt: int
    again_at: datetime | None
    dead: bool


@dataclass(eq=False)
class Event:
    """An event that is leased to this process. What is neither acknowledged nor refused comes again after the lease."""

    id: str
    position: str
    token: str
    attempt: int
    type: str
    key: str | None
    tenant: str
    occurred_at: datetime
    payload: Any
    metadata: Mapping[str, Any] | None
    _subscription: Subscription = field(repr=False)
    acknowledged: bool = False

    def ack(self) -> bool:
        """Tells that the event is handled. False: the lease had ended before, so the event comes again."""
        self.acknowledged = not self._subscription.ack([self])
        return self.acknowledged

    def nack(self, error: object, delay: str | None = None) -> Nacked | None:
        """Tells that it failed, and when to try again (`10s`; the subscription knows). None: the lease had ended."""
        body = {"id": self.id, "token": self.token, "error": str(error)[:_LONGEST_ERROR]}
        try:
            answer = self._subscription.post("nack", body if delay is None else {**body, "delay": delay})
        except OutboxError as refusal:
            if refusal.status == 409:
                return None
            raise
        again_at = answer["again_at"]
        return Nacked(answer["attempt"], again_at and datetime.fromisoformat(again_at), answer["dead"])

    @property
    def lane(self) -> tuple[str, str]:
        """What stays in order: events of one key; without one, each by itself."""
        return (self.tenant, f"key {self.key}" if self.key else f"id {self.id}")


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

    def pull(self, most: int = 10, wait: int = 5) -> list[Event]:
        """Leases up to so many events, and waits up to so many seconds for the first."""
        answer = self._outbox.request("GET", f"{self._path}/events?wait={wait}s&most={most}", more_time=wait)
        return [
            Event(
                e["id"], e["position"], e["token"], e["attempt"], e["type"], e.get("key"), e["tenant"],
                datetime.fromisoformat(e["occurred_at"]), e["payload"], e.get("metadata"), self,
            )
            for e in answer["events"]
        ]

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
        stop, backoff = stop or threading.Event(), Backoff()
        while not stop.is_set():
            try:
                pulled = self.pull(most)
            except OutboxError as error:
                backoff.wait(stop, error)
                continue
            backoff.reset()
            held = set()
            for event in pulled:
                if stop.is_set():
                    return
                if event.lane not in held:
                    yield event
                    if not event.acknowledged:
                        held.add(event.lane)

    def consume(
        self, handler: Callable[[Event], object], concurrency: int = 8, stop: threading.Event | None = None
    ) -> None:
        """Calls a handler for each event, in several threads and in the order of each key, until `stop` is set.

        What it returns from is acknowledged, what it raises for is refused and comes again. At the end the handlers
        that run are waited for. Raises OutboxError for what waiting does not cure.
        """
        from .consumer import Consumer

        Consumer(self, handler, concurrency, stop or threading.Event()).run()
