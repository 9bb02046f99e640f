"""Writes events in the transaction that changes your data (psycopg 3: `pip install outboxrelay[postgres]`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Composed, Identifier

MAX_PAYLOAD = 1 << 20  # bytes of JSON, as of the library in Go

# Characters, as ADR-004 declares the columns.
_LIMITS = {
    "topic": 150, "schema_id": 128, "aggregate_type": 100, "aggregate_id": 128, "tenant_id": 64, "source": 50,
}
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # escaped; "\\u0000" is a backslash and five letters


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened.

    Events of one tenant, aggregate type and aggregate id arrive in order; one without an `aggregate_id` has no order.
    A producer that may repeat itself chooses the `id`: outbox_events takes an id once.
    """

    topic: str
    payload: Any
    source: str
    aggregate_type: str | None = None
    aggregate_id: str | None = None
    tenant_id: str = "default"
    id: UUID | None = None
    occurred_at: datetime | None = None
    schema_id: str | None = None
    schema_version: int = 1
    destinations: Sequence[str] | None = None
    metadata: Mapping[str, Any] | None = None


_INSERT = SQL(
    """INSERT INTO {} (id, event_topic, occurred_at, schema_id, schema_version, aggregate_id, aggregate_type, tenant_id,
                       source_bc, destination_topics, payload, metadata)
       VALUES (coalesce(%s::uuid, outbox_uuidv7()), %s, coalesce(%s::timestamptz, now()), %s, %s, %s, %s, %s,
               %s, %s::jsonb, %s::jsonb, %s::jsonb)"""
)


def write(connection: psycopg.Connection[Any], *events: Event, table: str = "outbox_events") -> None:
    """Writes events, in their order, in the open transaction of a connection: they exist exactly if that commits.

    The table is outbox_events or outbox_log, with its schema if it needs one. Raises ValueError, with nothing sent and
    the transaction as it was, for an event that the database would refuse, and RuntimeError without a transaction.
    """
    statement, rows = _prepare(connection, events, table)
    with connection.cursor() as cursor:
        cursor.executemany(statement, rows)


async def write_async(connection: psycopg.AsyncConnection[Any], *events: Event, table: str = "outbox_events") -> None:
    """As `write`, of an AsyncConnection."""
    statement, rows = _prepare(connection, events, table)
    async with connection.cursor() as cursor:
        await cursor.executemany(statement, rows)


def _prepare(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], events: Sequence[Event], table: str
) -> tuple[Composed, list[tuple[object, ...]]]:
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise RuntimeError("write an event within a transaction: `with connection.transaction():`")
    if connection.info.encoding != "utf-8":
        raise RuntimeError(f"the connection's encoding is {connection.info.encoding}: set client_encoding to UTF8")
    names = table.split(".")
    if names[-1] not in ("outbox_events", "outbox_log"):
        raise ValueError(f"table: {table!r} is neither outbox_events nor outbox_log")
    statement = _INSERT.format(Identifier(*names))
    if names[-1] == "outbox_events":  # of a log an id is not unique
        statement += SQL(" ON CONFLICT (id) DO NOTHING")
    return statement, [_row(event) for event in events]


def _row(event: Event) -> tuple[object, ...]:
    for name, limit in _LIMITS.items():
        _check_text(name, getattr(event, name), limit)
    for destination in event.destinations or ():
        _check_text("destinations", destination, _LIMITS["topic"])
    if not 0 < event.schema_version < 1 << 31:
        raise ValueError("schema_version: must be between 1 and 2147483647")
    if event.occurred_at is not None and event.occurred_at.tzinfo is None:
        raise ValueError("occurred_at: needs a time zone, such as datetime.now(timezone.utc)")
    return (
        event.id, event.topic, event.occurred_at, event.schema_id, event.schema_version, event.aggregate_id,
        event.aggregate_type, event.tenant_id, event.source,
        None if event.destinations is None else _json("destinations", list(event.destinations)),
        _json("payload", event.payload), None if event.metadata is None else _json("metadata", dict(event.metadata)),
    )


def _check_text(name: str, text: str | None, limit: int) -> None:
    if text is None:
        return
    if not text:
        raise ValueError(f"{name}: is empty")
    if len(text) > limit:
        raise ValueError(f"{name}: has {len(text)} characters, the limit is {limit}")
    if "\0" in text or not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError(f"{name}: contains NUL or half a surrogate pair, which PostgreSQL text cannot hold")


def _json(name: str, value: object) -> str:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        size = len(text.encode())  # raises for half a surrogate pair
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: is no JSON: {error}") from error
    if size > MAX_PAYLOAD:
        raise ValueError(f"{name}: has {size} bytes, the limit is {MAX_PAYLOAD}")
    if _NUL.search(text):
        raise ValueError(f"{name}: contains NUL, which PostgreSQL's jsonb cannot hold")
    return text
