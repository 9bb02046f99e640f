"""The producer, on the database of a running gateway (clients/python_test.go)."""

import asyncio
import os
import unittest
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
from outboxrelay.postgres import Event, write, write_async


def order(number: int) -> Event:
    return Event(topic="order.placed", source="shop", payload={"number": number}, aggregate_type="Order", aggregate_id="42")


class Producer(unittest.TestCase):
    def setUp(self) -> None:
        self.connection = psycopg.connect(os.environ["DATABASE_URL"])
        self.addCleanup(self.connection.close)

    def count(self, topic: str, table: str = "outbox_events") -> int:
        with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
            statement = psycopg.sql.SQL("SELECT count(*) FROM {} WHERE event_topic = %s")
            row = connection.execute(statement.format(psycopg.sql.Identifier(table)), (topic,)).fetchone()
            assert row is not None
            return int(row[0])

    def test_events_exist_if_the_transaction_commits(self) -> None:
        with self.connection.transaction():
            write(self.connection, *(order(n) for n in range(3)))
        with self.connection.transaction(force_rollback=True):
            write(self.connection, order(3))
        self.assertEqual(self.count("order.placed"), 3)

    def test_an_id_is_written_once(self) -> None:
        event = Event(topic="once", payload=None, source="shop", id=uuid4(), occurred_at=datetime.now(UTC))
        for _ in range(2):
            with self.connection.transaction():
                write(self.connection, event)
        self.assertEqual(self.count("once"), 1)

    def test_every_field_arrives(self) -> None:
        event = Event(
            topic="full", payload=[1, "Zoë", '\\u0000 "'], source="shop", aggregate_type="Order", aggregate_id="7",
            tenant_id="acme", id=uuid4(), occurred_at=datetime(2026, 1, 2, tzinfo=UTC), schema_id="order-v2",
            schema_version=2, destinations=["full", "audit"], metadata={"trace_id": "7f"},
        )
        with self.connection.transaction():
            write(self.connection, event, table="public.outbox_log")
        got = self.connection.execute(
            """SELECT event_topic, payload, source_bc, aggregate_type, aggregate_id, tenant_id, id, occurred_at, schema_id,
                      schema_version, destination_topics, metadata
                 FROM outbox_log WHERE event_topic = 'full'"""
        ).fetchone()
        self.assertEqual(got, tuple(vars(event).values()))

    def test_a_bad_event_is_refused_before_anything_is_sent(self) -> None:
        good: dict[str, Any] = {"topic": "bad", "payload": 1, "source": "shop"}
        bad: dict[str, dict[str, Any]] = {
            "topic: is empty": {"topic": ""}, "topic: has 151": {"topic": "x" * 151}, "source: is empty": {"source": ""},
            "payload: contains NUL": {"payload": "a\0"}, "payload: is no JSON": {"payload": float("nan")},
            "payload: is no JSON: 'utf-8'": {"payload": "\ud800"}, "payload: has 1048579": {"payload": "x" * (1 << 20) + "y"},
            "aggregate_id: contains NUL": {"aggregate_id": "\0"}, "tenant_id: contains NUL or half": {"tenant_id": "\udfff"},
            "schema_version: must": {"schema_version": 0}, "occurred_at: needs": {"occurred_at": datetime(2026, 1, 1)},
            "destinations: is empty": {"destinations": ["a", ""]}, "metadata: is no JSON": {"metadata": {"a": object()}},
        }
        with self.connection.transaction():
            for says, fields in bad.items():
                with self.subTest(says), self.assertRaisesRegex(ValueError, says):
                    write(self.connection, order(1), Event(**{**good, **fields}))
            with self.assertRaisesRegex(ValueError, "is neither outbox_events nor"):
                write(self.connection, order(1), table='outbox_events"; DROP TABLE apps; --')
            self.connection.execute("SELECT 1")  # the transaction is as it was
        self.assertEqual(self.count("bad"), 0)

    def test_a_connection_without_a_transaction_is_refused(self) -> None:
        self.connection.autocommit = True
        with self.assertRaisesRegex(RuntimeError, "within a transaction"):
            write(self.connection, order(1))
        with self.connection.transaction():
            write(self.connection, Event(topic="autocommit", payload=1, source="shop"))
        self.assertEqual(self.count("autocommit"), 1)

    def test_async(self) -> None:
        async def main() -> None:
            async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"]) as connection:
                await write_async(connection, Event(topic="async", payload=1, source="shop"))

        asyncio.run(main())
        self.assertEqual(self.count("async"), 1)

    def test_the_relay_delivers_it(self) -> None:
        event = Event(topic="delivered", payload={"total": "9.90"}, source="shop", id=uuid4())
        with self.connection.transaction():
            write(self.connection, event)
        sent = "SELECT 1 FROM outbox_events WHERE id = %s AND status = 'SENT'"
        while self.connection.execute(sent, (event.id,)).fetchone() is None:  # the test's patience ends it
            self.connection.rollback()
