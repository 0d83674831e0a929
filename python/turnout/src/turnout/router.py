"""A router that ends with the Python process that started it."""

from __future__ import annotations

import difflib
import os
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ._calls import Call, T
from ._command import list_text_of, text_of
from ._options import RouterOptions
from ._process import RouterError, RouterProcess
from .client import Client

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class Router(Client):
    """Runs a router, and controls it with the methods of `Client`.

    Options are those of `turnout serve` with underscores (`RouterOptions` has them all); one that is None is not given.
    Those that are not named come from `TURNOUT_…` variables, from the YAML file `config`, or are the router's defaults. A
    name that is no option is a `TypeError`.

    >>> with Router(policy="consistent_hash", worker_urls=["http://worker1:8000"], port=0) as router:
    ...     router.add_worker("http://worker2:8000")

    The router is a process of its own: requests do not pass through Python. It ends with `stop()`, with the `with` block,
    and with this process, however that ends. What is under way finishes first, for at most `shutdown_grace_period_secs`.
    """

    def __init__(self, *, config: str | os.PathLike[str] | None = None, **options: Unpack[RouterOptions]) -> None:
        self._environment = _environment(options)
        words = [] if config is None else ["--config", os.fspath(config)]
        self._process = RouterProcess(["serve", *words], self._environment)
        self._metrics_url = ""
        super().__init__("")

    @property
    def url(self) -> str:
        """The router's URL, for example `http://127.0.0.1:30000`; '' before the start."""
        return self._url

    @property
    def metrics_url(self) -> str:
        """The URL of the metrics port; '' before the start."""
        return self._metrics_url

    @property
    def pid(self) -> int | None:
        """The process id; None before the start."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    def start(self, timeout_secs: float = 60) -> Self:
        """Starts the router and returns once it listens; `wait_ready()` waits for workers as well.

        Raises `RouterError`, with the words of the router, when it does not start.
        """
        told = self._process.start(timeout_secs)
        self._url = _from_here(told["url"] or "")
        self._metrics_url = _from_here(told["metricsUrl"] or "")
        self._control_url = _from_here(told["adminUrl"] or "") or self._url
        self._api_key = told["controlKey"]
        certificate = told["certificate"]
        if certificate is not None:
            self._verify = _trust_in(certificate)
        return self

    def wait(self) -> int:
        """Blocks until the router has ended. Returns its exit code."""
        return self._process.wait()

    def stop(self, timeout_secs: float | None = None) -> None:
        """Accepts no more requests, lets those in flight finish, and stops the router.

        After `timeout_secs` it is killed; without a timeout it takes at most `shutdown_grace_period_secs`. A router that
        does not run is left alone.
        """
        # The router keeps idle connections for a moment while it drains.
        self.close()
        self._process.stop(timeout_secs)

    def _do(self, call: Call[T]) -> T:
        if self._url == "":
            raise RouterError("the router was not started: call start(), or use it as a `with` block")
        return super()._do(call)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _environment(options: Mapping[str, Any]) -> dict[str, str]:
    """As environment variables, because other users can read command lines."""
    known = RouterOptions.__annotations__
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise TypeError(f"Router has no option {name!r}{f': did you mean {near[0]!r}?' if near else ''}")
    return {f"TURNOUT_{name.upper()}": _text(value) for name, value in options.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple, set, frozenset)):
        return list_text_of(value)
    return text_of(value)


def _from_here(url: str) -> str:
    """Replaces a wildcard address, which cannot be connected to."""
    if urlsplit(url).hostname == "0.0.0.0":
        return url.replace("0.0.0.0", "127.0.0.1", 1)
    return url.replace("[::]", "[::1]", 1)


def _trust_in(certificate: str) -> ssl.SSLContext:
    """Trusts exactly this certificate, whatever its name, because this process started the router with it."""
    context = ssl.create_default_context(cafile=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


__all__ = ["Router", "RouterError"]
