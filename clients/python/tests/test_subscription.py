"""Subscriptions, at a running gateway that the tests kill (clients/python_test.go)."""

import os
import subprocess
import sys
import threading
import unittest
import urllib.request
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import psycopg
from outboxrelay import Event, Outbox, OutboxError, Subscription
from outboxrelay import postgres

OUTBOX = Outbox(os.environ["OUTBOX_URL"], os.environ["OUTBOX_TOKEN"])
KEYS, EACH = "abcde", 20


def control(what: str) -> None:
    urllib.request.urlopen(urllib.request.Request(f"{os.environ['OUTBOX_CONTROL']}/{what}", method="POST")).close()


def subscribed(name: str, **options: Any) -> Subscription:
    """A new subscription of events of its own name."""
    subscription = OUTBOX.subscription(name)
    subscription.create([name], "earliest", **options)
    return subscription


def write(type: str, key: str, numbers: range, of: str = "Order") -> None:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        events = (
            postgres.Event(topic=type, source="shop", aggregate_type=of, aggregate_id=key, payload=n) for n in numbers
        )
        postgres.write(connection, *events, table="outbox_log")


class Notes:
    """What was handled, by key."""

    def __init__(self) -> None:
        self.handled: dict[str, list[int]] = defaultdict(list)
        self._lock = threading.Lock()

    def note(self, event: Event) -> int:
        """Notes an event and returns how many different ones there are."""
        with self._lock:
            self.handled[str(event.key)].append(event.payload)
            return sum(len(set(numbers)) for numbers in self.handled.values())


class Consuming(unittest.TestCase):
    def in_order(self, notes: Notes) -> None:
        """Each number comes after the one before it, and may come again: at least once."""
        for key, numbers in notes.handled.items():
            last = 0
            for n in numbers:
                self.assertLessEqual(n, last + 1, f"{key}: {numbers}")
                last = max(last, n)

    def test_everything_is_handled_in_the_order_of_each_key_though_the_gateway_is_killed(self) -> None:
        subscription = subscribed("ordered", lease="3s")
        for key in KEYS:
            write("ordered", key, range(1, EACH + 1))
        notes, stop, kill = Notes(), threading.Event(), threading.Lock()

        def handle(event: Event) -> None:
            count = notes.note(event)
            if count >= 30 and kill.acquire(blocking=False):
                control("kill")
                control("start")
            if count == len(KEYS) * EACH:
                stop.set()

        subscription.consume(handle, 3, stop)
        self.in_order(notes)
        self.assertEqual(sorted(notes.handled), list(KEYS))
        self.assertTrue(kill.locked(), "the gateway was not killed")

    def test_what_fails_comes_again_before_what_is_behind_it_and_is_a_letter_in_the_end(self) -> None:
        subscription = subscribed("failing", max_attempts=2)
        for key in ("good", "slow", "dead"):
            write("failing", key, range(1, 4))
        notes, stop = Notes(), threading.Event()

        def handle(event: Event) -> None:
            if event.payload == 2 and (event.key == "dead" or event.key == "slow" and event.attempt == 1):
                raise ValueError(f"{event.key} {event.attempt}")
            if notes.note(event) == 8:
                stop.set()

        with self.assertLogs("outboxrelay") as logs:
            subscription.consume(handle, stop=stop)
        self.assertEqual(notes.handled, {"good": [1, 2, 3], "slow": [1, 2, 3], "dead": [1, 3]})
        self.assertEqual(sum("failed" in line for line in logs.output), 3)
        with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
            letters = connection.execute("SELECT error_history FROM job_dlq WHERE destination = 'failing'").fetchall()
        self.assertEqual([[e["error"] for e in history] for (history,) in letters], [["ValueError: dead 1", "ValueError: dead 2"]])

    def test_what_a_killed_process_had_in_hand_is_another_s_after_the_lease(self) -> None:
        subscription = subscribed("killed", lease="2s")
        for key in KEYS:
            write("killed", key, range(1, 5))
        with subprocess.Popen([sys.executable, "tests/consumer.py", "killed"], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            hung = process.stdout.readline()
            process.kill()
        self.assertTrue(hung.strip(), "it was killed before it had an event")
        notes, stop = Notes(), threading.Event()

        def handle(event: Event) -> None:
            if notes.note(event) == 4 * len(KEYS):
                stop.set()

        subscription.consume(handle, 2, stop)
        self.in_order(notes)

    def test_the_loop_an_event_that_is_not_acknowledged_in_time_is_another_s_and_says_so(self) -> None:
        subscription = subscribed("loop", lease="1s")
        write("loop", "k", range(1, 3))
        first, again = next(subscription.events(most=1)), subscription.events(most=2)
        second = next(again)
        self.assertEqual((first.payload, second.id, second.attempt), (1, first.id, 2))
        self.assertFalse(first.ack())
        self.assertIsNone(first.nack("late"))
        nacked = second.nack("not today", "0s")
        self.assertFalse(nacked is None or nacked.dead)
        third = next(again)  # not the second of the key, which it had in hand
        self.assertEqual((third.payload, third.attempt, third.ack()), (1, 3, True))
        last = next(again)
        self.assertEqual(last.payload, 2)
        nacked = last.nack("not a string", reason="DeserializationFailed")  # other reasons: after 5 attempts
        self.assertTrue(nacked is not None and nacked.dead)

    def test_the_same_id_of_another_type_is_another_key(self) -> None:
        subscription = subscribed("types")
        write("types", "42", range(1, 2))
        write("types", "42", range(2, 3), "Invoice")
        events = subscription.events(most=2)
        order = next(events)
        order.nack("out of stock", "1h")
        invoice = next(events)
        self.assertEqual((order.payload, invoice.payload, invoice.key, invoice.ack()), (1, 2, "42", True))
        self.assertNotEqual(order.order_key, invoice.order_key)

    def test_a_stop_lets_handlers_end_and_acknowledges_them(self) -> None:
        subscription, stop, notes = subscribed("stopped"), threading.Event(), Notes()
        write("stopped", "k", range(1, 4))

        def handle(event: Event) -> None:
            stop.set()
            notes.note(event)

        subscription.consume(handle, stop=stop)
        write("stopped", "k", range(4, 5))
        self.assertEqual(next(subscription.events()).payload, 4)
        self.assertEqual(notes.handled, {"k": [1, 2, 3]})

    def test_what_waiting_does_not_cure_is_raised(self) -> None:
        for outbox, name, status in (OUTBOX, "nosuch", 404), (Outbox(os.environ["OUTBOX_URL"], "obx_wrong"), "loop", 401):
            with self.assertRaises(OutboxError) as raised:
                outbox.subscription(name).consume(lambda event: None)
            self.assertEqual(raised.exception.status, status)
        with self.assertRaisesRegex(ValueError, "is no address"):
            Outbox("nowhere", "obx_")

    def test_the_token_does_not_follow_a_redirect(self) -> None:
        asked = []

        class Redirecting(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(302)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            do_POST = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        with HTTPServer(("127.0.0.1", 0), Redirecting) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            redirected = Outbox(f"http://127.0.0.1:{server.server_port}", "obx_secret")
            for method in "GET", "POST":
                with self.assertRaises(OutboxError) as raised:
                    redirected.request(method, "/v1/runs")
                self.assertEqual((raised.exception.status, raised.exception.transient), (302, False))
            server.shutdown()
        self.assertEqual(asked, ["/v1/runs", "/v1/runs"])
