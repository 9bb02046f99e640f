"""Handles the events of a subscription in several threads, in the order of each key."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TypeVar

from .gateway import Backoff, OutboxError
from .subscription import Event, Subscription

T = TypeVar("T")
_log = logging.getLogger("outboxrelay")

_ACKS_AT_ONCE = 500


class Consumer:
    """What one call of `consume` has in hand: at most two events for each thread, so that leases do not end in here."""

    def __init__(
        self, subscription: Subscription, handler: Callable[[Event], object], concurrency: int, stop: threading.Event
    ) -> None:
        self._subscription = subscription
        self._handler = handler
        self._concurrency = concurrency
        self._stop = stop
        self._in_hand = 0
        self._freed = threading.Condition()
        self._handled: SimpleQueue[Event | None] = SimpleQueue()  # None: nothing follows

    def run(self) -> None:
        acks = threading.Thread(target=self._acknowledge, name="outbox-acks")
        acks.start()
        try:
            with ThreadPoolExecutor(self._concurrency, "outbox") as workers:  # it waits for them
                for events in self._subscription.batches(self._room, self._stop):
                    with self._freed:
                        self._in_hand += len(events)
                    # All that is leased of a key comes in one answer, and nothing more until that is acknowledged.
                    lanes: dict[object, list[Event]] = {}
                    for event in events:
                        lanes.setdefault(event.lane, []).append(event)
                    for lane in lanes.values():
                        workers.submit(self._handle, lane)
        finally:
            self._handled.put(None)
            acks.join()

    def _room(self) -> int:
        with self._freed:
            self._freed.wait_for(lambda: self._in_hand <= self._concurrency)
            return 2 * self._concurrency - self._in_hand

    def _handle(self, events: list[Event]) -> None:
        """Handles events of one key. What follows one that failed comes again behind it."""
        for event in events:
            try:
                self._handler(event)
            except Exception as error:
                _log.exception("event %s (%s) failed", event.id, event.type)
                text = f"{type(error).__name__}: {error}"
                self._persist(lambda: event.nack(text))
                break
            self._handled.put(event)
        with self._freed:
            self._in_hand -= len(events)
            self._freed.notify()

    def _acknowledge(self) -> None:
        """Sends what is handled: while one request is under way, what gathers becomes the next."""
        more = True
        while more:
            batch = [self._handled.get()]
            try:
                while len(batch) < _ACKS_AT_ONCE:
                    batch.append(self._handled.get_nowait())
            except Empty:
                pass
            more = None not in batch
            if events := [event for event in batch if event is not None]:
                for id, reason in (self._persist(lambda: self._subscription.ack(events)) or {}).items():
                    if reason == "lapsed":  # of one that is unknown an earlier request was heard, whose answer was lost
                        _log.warning("event %s was handled after its lease, and comes again", id)

    def _persist(self, send: Callable[[], T]) -> T | None:
        """Tries until the gateway has answered. What it never hears of comes again, when its lease ends."""
        backoff = Backoff()
        while True:
            try:
                return send()
            except OutboxError as error:
                if self._stop.is_set() or not error.transient:
                    _log.warning("the gateway was not told what became of an event: %s", error)
                    return None
                backoff.wait(self._stop, error)
