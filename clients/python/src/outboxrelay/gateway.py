"""Requests to a gateway, and which of their failures waiting may cure."""

from __future__ import annotations

import http.client
import json
import random
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .subscription import Subscription

_LONGEST = 30.0  # seconds between two attempts


class OutboxError(Exception):
    """An answer that is no success (`status`), or none that came (`status` 0)."""

    def __init__(self, status: int, message: str, retry_after: float = 0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    @property
    def transient(self) -> bool:
        """Whether waiting may cure it. It does not cure 501: this gateway has no subscriptions."""
        return self.status in (0, 429) or self.status >= 500 and self.status != 501


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves a redirect as a refusal: urllib would send the token to wherever it leads."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


class Outbox:
    """An Outbox gateway: where it answers, and a token of `outbox token create`. It is safe for several threads."""

    def __init__(self, url: str, token: str, timeout: float = 30) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"url: {url!r} is no address such as https://outbox.example.com")
        self._url = url.rstrip("/")
        self._token = token
        self._timeout = timeout

    def subscription(self, name: str) -> Subscription:
        """The durable subscription of this name, which `create` makes."""
        from .subscription import Subscription

        return Subscription(self, name)

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Sends a request and returns the answer's JSON. Raises OutboxError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with _OPENER.open(request, timeout=self._timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            raise OutboxError(0, f"no answer from the gateway: {error}") from error


def _refusal(error: urllib.error.HTTPError) -> OutboxError:
    try:
        detail = str(json.load(error)["detail"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        detail = f"status {error.code}"
    seconds = error.headers.get("Retry-After", "")
    return OutboxError(error.code, detail, float(seconds) if seconds.isdecimal() else 0)


class Backoff:
    """Waits that double from half a second to half a minute, each by chance shorter: clients do not come together."""

    def __init__(self) -> None:
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def wait(self, stop: threading.Event, error: OutboxError) -> None:
        """Waits before the next attempt, or until `stop` is set; raises an error that waiting does not cure."""
        if not error.transient:
            raise error
        most = min(_LONGEST, 0.5 * 2 ** min(self._failures, 10))
        self._failures += 1
        stop.wait(error.retry_after + most * random.uniform(0.5, 1))
