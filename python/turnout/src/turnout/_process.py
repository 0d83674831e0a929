"""A router as a child process in its own process group, which ends with its parent."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from weakref import WeakSet

from ._command import command

_links: WeakSet[socket.socket] = WeakSet()


def _close_links() -> None:
    for link in list(_links):
        link.close()


# A forked child must not keep the socket open by which the router detects the end of its parent.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_links)


class RouterError(RuntimeError):
    """The router did not start (the message is the one of the router), or was not started."""


class RouterProcess:
    """`turnout` with these arguments and environment variables. Its log goes to this process's output.

    The two hold the ends of a socket: the router says on it where it listens, and drains and ends, as on SIGTERM, once this
    end is closed. The system closes it however this process dies, also by `kill -9`.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._words = words
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None before the start."""
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_secs: float) -> Mapping[str, str | None]:
        """Starts the router and returns once it listens, with its addresses (`url`, `metricsUrl`, `adminUrl`), a key that
        may control it (`controlKey`), and its `certificate`.

        Raises `RouterError` when it does not start, or not in time.
        """
        if self.is_running:
            raise RouterError("the router runs already")
        link, theirs = socket.socketpair()
        _links.add(link)
        with theirs:
            fd = theirs.fileno()
            process = subprocess.Popen(
                [*command(), *self._words],
                env={**os.environ, **self._environment, "TURNOUT_PARENT_FD": str(fd)},
                stdin=subprocess.DEVNULL,
                pass_fds=[fd],
                # Ctrl-C goes to this process only, which stops the router itself.
                start_new_session=True,
            )
        self._process, self._link = process, None
        try:
            message = _first_message(process, link, timeout_secs)
        except BaseException:
            process.kill()
            _end(process, link)
            raise
        if message.get("error") is None:
            # Only now, because `stop` in another thread closes it.
            self._link = link
            return message
        _end(process, link)
        raise RouterError(self._in_keywords(message["error"]))

    def _in_keywords(self, error: str) -> str:
        """Replaces the names of variables in an error by the keywords that the caller used."""
        for name in self._environment:
            error = error.replace(f"{name}: ", f"{name.removeprefix('TURNOUT_').lower()}: ")
        return error

    def wait(self) -> int:
        """Blocks until the router has ended. Returns its exit code, negative for a signal.

        In a child process of `multiprocessing` the router is stopped when that child's parent has ended.
        """
        process, link = self._process, self._link
        if process is None or link is None:
            raise RouterError("the router was not started")
        parent = multiprocessing.parent_process()
        parent_pid = os.getppid()
        # The link is not watched, because `stop` in another thread closes it.
        while parent is not None and process.poll() is None:
            # Siblings may keep the sentinel of a forked child open, so the parent's pid is checked as well.
            if not parent.is_alive() or os.getppid() != parent_pid:
                process.terminate()
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
        return _end(process, link)

    def stop(self, timeout_secs: float | None) -> None:
        """Stops the router: requests in flight finish within `shutdown_grace_period_secs`; after `timeout_secs` it is killed."""
        process, link = self._process, self._link
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout_secs)
            except subprocess.TimeoutExpired:
                process.kill()
        _end(process, link)


def _end(process: subprocess.Popen[bytes], link: socket.socket | None) -> int:
    """Closes the link when the router has ended. Returns its exit code, negative for a signal."""
    code = process.wait()
    if link is not None:
        link.close()
    return code


def _first_message(process: subprocess.Popen[bytes], link: socket.socket, timeout_secs: float) -> Mapping[str, str]:
    until = time.monotonic() + timeout_secs
    line = b""
    while not line.endswith(b"\n"):
        try:
            link.settimeout(max(0.001, until - time.monotonic()))
            part = link.recv(65_536)
        except TimeoutError:
            raise RouterError(f"the router did not listen within {timeout_secs} seconds") from None
        if part == b"":
            code = process.wait()
            raise RouterError(f"the router ended with exit code {code} before it listened; its output says why")
        line += part
    link.settimeout(None)
    message: Mapping[str, str] = json.loads(line)
    return message
