"""Groups of finished sessions from a router with `--plugin feed`, as numpy arrays for a trainer."""

from __future__ import annotations

import importlib.util
import logging
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

import httpx

from . import _calls as calls
from ._calls import Call, ControlError, T
from ._groups import Group, Row, read_arrow, read_ndjson
from .client import _Address

if TYPE_CHECKING:
    from typing_extensions import Self

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECS, _LONGEST_PAUSE_SECS = 0.2, 10.0
# Leases that the router takes in one call.
_MOST_LEASES = 10_000
_CLOSED = "the feed is closed"
# The router, or a proxy in front of it, is not able to serve now.
_AWAY = (502, 503, 504)


class LeaseLost(Exception):
    """Leases have passed, and their groups may have been delivered again: do not train on these. `leases` names them."""

    def __init__(self, leases: Sequence[str]) -> None:
        # As those of `ControlError`.
        super().__init__(leases)
        self.leases = list(leases)

    def __str__(self) -> str:
        return f"leases are lost: {', '.join(self.leases)}. Their groups may have been delivered again."


class Feed(_Address):
    """Takes groups from the router at `url`; `api_key` is a client's key, or an admin key for the groups of all clients.

    >>> with Feed("http://127.0.0.1:30000") as feed:
    ...     for group in feed:
    ...         train(group)
    ...         feed.ack(group)

    Iterating waits for groups and never ends by itself. A group that is not acked within `lease_secs` is delivered again,
    with the same `id`: store the id with the checkpoint, and ack a group whose id is there without training on it. `close`
    and the end of the `with` block give back what is not acked; where another thread waits for groups, its loop ends, and
    its `take` is a `RuntimeError`. `format` is 'arrow' where pyarrow is installed, else
    'ndjson'; groups are equal. While the router cannot be reached, calls are repeated for `retry_secs`, with a warning in
    the log `turnout.feed`; then they raise `httpx.TransportError`. A refusal is a `ControlError`.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        consumer: str = "",
        lease_secs: float = 600,
        max_groups: int = 8,
        wait_secs: float = 30,
        retry_secs: float = 600,
        format: Literal["arrow", "ndjson"] | None = None,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        super().__init__(url, api_key, verify)
        self._query = {"consumer": consumer, "lease_secs": str(lease_secs)}
        self._lease_secs, self._max_groups, self._wait_secs = lease_secs, max_groups, wait_secs
        self._retry_secs = retry_secs
        self.format = format or ("arrow" if importlib.util.find_spec("pyarrow") is not None else "ndjson")
        self._http = httpx.Client(verify=self._trust, trust_env=False)
        # Of its own, because `close` breaks its connections while groups are waited for on them.
        self._taking = httpx.Client(verify=self._trust, trust_env=False)
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._closed = threading.Event()
        # What `close` reads while another thread takes groups.
        self._lock = threading.Lock()
        # Taken and not handed out, when they were leased; and all leases that are neither acked nor given back.
        self._next: deque[Group] = deque()
        self._leased = 0.0
        self._held: dict[str, None] = {}

    def take(self, max_groups: int | None = None, wait_secs: float | None = None) -> list[Group]:
        """At most `max_groups` groups. Empty: none was ready within `wait_secs` seconds (0: does not wait)."""
        wait = self._wait_secs if wait_secs is None else wait_secs
        most = self._max_groups if max_groups is None else max_groups
        query = {**self._query, "max_groups": str(most), "wait_secs": str(wait)}
        call = calls.take({**query, "format": self.format}, wait + 30)
        groups = self._retried(lambda: self._received(call))
        leases = [group.lease for group in groups]
        with self._lock:
            is_closed = self._closed.is_set()
            if not is_closed:
                self._held.update(dict.fromkeys(leases))
        if is_closed:
            # `close` did not know them.
            self._give_back(leases)
            raise RuntimeError(_CLOSED)
        return groups

    def __iter__(self) -> Iterator[Group]:
        while not self._closed.is_set():
            try:
                if not self._next:
                    self._leased = time.monotonic()
                    self._next.extend(self.take())
                # The consumer was busy with groups of the same response, and the leases of all others may pass.
                elif time.monotonic() - self._leased > self._lease_secs / 4:
                    self._renew_next()
            except RuntimeError:
                # Closed by another thread.
                if self._closed.is_set():
                    return
                raise
            if self._next and not self._closed.is_set():
                yield self._next.popleft()

    def ack(self, *groups: Group) -> None:
        """Groups are trained on: they do not come again. Raises `LeaseLost` for those that were delivered again,
        to another consumer or to this one: then the newest lease counts.
        """
        self._claim("ack", groups)

    def nack(self, *groups: Group) -> None:
        """Gives groups back: they are delivered again at once. One whose lease is lost is left alone."""
        self._claim("nack", groups)

    def renew(self, *groups: Group, lease_secs: float | None = None) -> None:
        """Leases groups for `lease_secs` seconds from now (None: as the feed's). Raises `LeaseLost`."""
        self._claim("renew", groups, self._lease_secs if lease_secs is None else lease_secs)

    def stats(self) -> dict[str, Any]:
        """The state of the feed, as `GET /feed/stats` has it."""
        return self._retried(lambda: self._do(calls.feed_stats()))

    def close(self) -> None:
        """Gives back the groups that are not acked, and closes the connections, also those of calls of other threads."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            held, sockets = list(self._held), list(self._sockets)
        for each in sockets:
            _break(each)
        self._give_back(held)
        self._http.close()
        self._taking.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _claim(self, act: str, groups: Iterable[Group], lease_secs: float | None = None) -> None:
        leases = [group.lease for group in groups]
        if not leases:
            return
        lost: list[str] = []
        for call in _claims(act, leases, lease_secs):
            lost += self._retried(partial(self._do, call))
        for lease in lost if act == "renew" else leases:
            self._held.pop(lease, None)
        if lost and act != "nack":
            raise LeaseLost(lost)

    def _give_back(self, leases: Sequence[str]) -> None:
        if not leases:
            return
        try:
            # The others may be closed.
            with httpx.Client(verify=self._trust, trust_env=False) as http:
                for call in _claims("nack", leases, None):
                    self._send(http, call)
        except (httpx.TransportError, ControlError) as error:
            _log.warning("%d groups come again when their leases pass: %s", len(leases), error)

    def _renew_next(self) -> None:
        """Renews what is not handed out yet, and leaves out what is lost."""
        began = time.monotonic()
        try:
            self.renew(*self._next)
        except LeaseLost as lost:
            for group in [each for each in self._next if each.lease in lost.leases]:
                _log.warning("the lease of group %d has passed: it is skipped here and delivered again", group.id)
                self._next.remove(group)
        self._leased = began

    def _do(self, call: Call[T]) -> T:
        return self._send(self._http, call)

    def _send(self, http: httpx.Client, call: Call[T]) -> T:
        return call.result(http.send(call.request(http, self._control_url, self._api_key)))

    def _connected(self, event: str, info: Mapping[str, Any]) -> None:
        """Notes the sockets on which groups are waited for. Closing one would not wake the thread that waits."""
        if event not in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            return
        with self._lock:
            opened = info["return_value"].get_extra_info("socket")
            self._sockets.add(opened)
            if self._closed.is_set():
                _break(opened)

    def _received(self, call: Call[bytes]) -> list[Group]:
        """The groups of a response; of one that breaks off those that came whole."""
        request = call.request(self._taking, self._control_url, self._api_key)
        request.extensions["trace"] = self._connected
        response = self._taking.send(request, stream=True)
        read = read_arrow if self.format == "arrow" else read_ndjson
        received = bytearray()
        try:
            if not response.is_success:
                response.read()
                call.result(response)
            for piece in response.iter_bytes():
                received += piece
        except httpx.TransportError as error:
            groups = read(bytes(received), False)
            if not groups:
                raise
            _log.warning("a response of the feed broke off after %d groups: %s", len(groups), error)
            return groups
        finally:
            response.close()
        return read(bytes(received), True)

    def _retried(self, call: Callable[[], T]) -> T:
        began, pause = time.monotonic(), _FIRST_PAUSE_SECS
        while not self._closed.is_set():
            try:
                return call()
            except (httpx.UnsupportedProtocol, httpx.LocalProtocolError):
                # A URL or a key with which no request can be made.
                raise
            except (httpx.TransportError, ControlError) as error:
                if self._closed.is_set():
                    break
                is_away = not isinstance(error, ControlError) or error.status in _AWAY
                if not is_away or time.monotonic() - began > self._retry_secs:
                    raise
                _log.warning("the router at %s is not there (%r): tried again in %.1f s", self._url, error, pause)
            self._closed.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECS)
        raise RuntimeError(_CLOSED)


def _claims(act: str, leases: Sequence[str], lease_secs: float | None) -> Iterator[Call[list[str]]]:
    for first in range(0, len(leases), _MOST_LEASES):
        yield calls.claim(act, leases[first : first + _MOST_LEASES], lease_secs)


def _break(connected: socket.socket) -> None:
    """Wakes the thread that reads from it."""
    with suppress(OSError):
        # Not the method of an `SSLSocket`, which forgets the encryption while that thread reads.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


__all__ = ["ControlError", "Feed", "Group", "LeaseLost", "Row"]
