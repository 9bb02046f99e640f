"""Handles the events of a subscription in several threads, in the order of each key."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TypeVar

from .gateway import Backoff, OutboxError
from .subscription import Event, Subscription

_log = logging.getLogger("outboxrelay")

_ACKS_AT_ONCE = 500

T = TypeVar("T")


class Consumer:
    """What one call of `consume` has in hand: at most two events for each thread, so that leases do not end in here."""

    def __init__(
        self, subscription: Subscription, handler: Callable[[Event], object], concurrency: int, stop: threading.Event
    ) -> None:
        self._subscription = subscription
        self._handler = handler
        self._concurrency = concurrency
        self._stop = stop
        self._lanes: dict[tuple[str, str], deque[Event]] = {}  # those that have a worker
        self._in_hand = 0
        self._ending = False
        self._changed = threading.Condition()
        self._handled: SimpleQueue[Event | None] = SimpleQueue()  # None: nothing follows

    def run(self) -> None:
        acks = threading.Thread(target=self._acknowledge, name="outbox-acks")
        acks.start()
        try:
            with ThreadPoolExecutor(self._concurrency, "outbox") as workers:
                try:
                    self._pull(workers)
                finally:
                    self._ending = True
        finally:
            self._handled.put(None)
            acks.join()

    def _pull(self, workers: ThreadPoolExecutor) -> None:
        backoff = Backoff()
        while not self._stop.is_set():
            with self._changed:
                if not self._changed.wait_for(lambda: self._in_hand <= self._concurrency, timeout=1):
                    continue  # to see whether it is to stop
                room = 2 * self._concurrency - self._in_hand
            try:
                events = self._subscription.pull(room)
            except OutboxError as error:
                backoff.wait(self._stop, error)
                continue
            backoff.reset()
            with self._changed:
                for event in events:
                    self._in_hand += 1
                    if event.lane in self._lanes:
                        self._lanes[event.lane].append(event)
                    else:
                        self._lanes[event.lane] = deque([event])
                        workers.submit(self._work, event.lane)

    def _work(self, lane: tuple[str, str]) -> None:
        """Handles the events of a lane until it is empty. What follows one that failed comes again behind it."""
        done = True
        while True:
            with self._changed:
                waiting = self._lanes[lane]
                if self._ending or not done:
                    self._in_hand -= len(waiting)
                    waiting.clear()
                self._changed.notify()
                if not waiting:
                    del self._lanes[lane]
                    return
                event = waiting.popleft()
            done = self._handle(event)
            with self._changed:
                self._in_hand -= 1

    def _handle(self, event: Event) -> bool:
        try:
            self._handler(event)
        except Exception as error:
            _log.warning("event %s (%s) failed: %s", event.id, event.type, error)
            self._persist(lambda: event.nack(f"{type(error).__name__}: {error}"))
            return False
        self._handled.put(event)
        return True

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
                refused = self._persist(lambda: self._subscription.ack(events))
                for id, reason in (refused or {}).items():
                    _log.warning("event %s was handled and comes again: its lease is %s", id, reason)

    def _persist(self, send: Callable[[], T]) -> T | None:
        """Tries until the gateway has answered. What it never hears of comes again, when its lease ends."""
        backoff = Backoff()
        while True:
            try:
                return send()
            except OutboxError as error:
                if self._ending or self._stop.is_set() or not error.transient:
                    _log.warning("the gateway was not told of what was handled: %s", error)
                    return None
                backoff.wait(self._stop, error)
