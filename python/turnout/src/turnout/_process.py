"""A router as a child process in its own process group, which ends with its parent."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait as wait_for
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
        self._link, theirs = socket.socketpair()
        _links.add(self._link)
        with theirs:
            fd = theirs.fileno()
            self._process = subprocess.Popen(
                [*command(), *self._words],
                env={**os.environ, **self._environment, "TURNOUT_PARENT_FD": str(fd)},
                stdin=subprocess.DEVNULL,
                pass_fds=[fd],
                # Ctrl-C goes to this process only, which stops the router itself.
                start_new_session=True,
            )
        try:
            message = self._first_message(timeout_secs)
        except BaseException:
            self._process.kill()
            self._release()
            raise
        if message.get("error") is None:
            return message
        self._release()
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
        # Siblings may keep the sentinel of a forked child open, so the parent's pid is checked as well.
        while process.poll() is None:
            ready = wait_for([link] if parent is None else [link, parent.sentinel], None if parent is None else 1)
            if parent is not None and (parent.sentinel in ready or os.getppid() != parent_pid):
                process.terminate()
                break
            if link in ready:
                break
        return self._release()

    def stop(self, timeout_secs: float | None) -> None:
        """Stops the router: requests in flight finish within `shutdown_grace_period_secs`; after `timeout_secs` it is killed."""
        if self._process is None or self._link is None:
            return
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout_secs)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._release()

    def _release(self) -> int:
        assert self._process is not None and self._link is not None
        code = self._process.wait()
        self._link.close()
        return code

    def _first_message(self, timeout_secs: float) -> Mapping[str, str]:
        assert self._process is not None and self._link is not None
        until = time.monotonic() + timeout_secs
        line = b""
        while not line.endswith(b"\n"):
            try:
                self._link.settimeout(max(0.001, until - time.monotonic()))
                part = self._link.recv(65_536)
            except TimeoutError:
                raise RouterError(f"the router did not listen within {timeout_secs} seconds") from None
            if part == b"":
                code = self._process.wait()
                raise RouterError(f"the router ended with exit code {code} before it listened; its output says why")
            line += part
        self._link.settimeout(None)
        message: Mapping[str, str] = json.loads(line)
        return message
