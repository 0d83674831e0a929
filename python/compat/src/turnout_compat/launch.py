"""Runs turnout like the other routers' `launch_router(args)`: blocks until the router has ended."""

from __future__ import annotations

from turnout import RouterError
from turnout._process import RouterProcess

from .args import PeerArgs

_START_TIMEOUT_SECS = 60


class BlockingRouter:
    """A router with these arguments, whose `start()` returns when it has ended."""

    def __init__(self, verb: str, args: PeerArgs) -> None:
        words, environment = args.command_line()
        self._process = RouterProcess([verb, *words], environment)
        self._is_stopped = False

    def start(self) -> None:
        """Runs the router until it is stopped. Raises `RouterError` if it does not start, fails or is killed."""
        self._is_stopped = False
        # Outside of the try: a start that is refused because the router runs must not stop it.
        self._process.start(_START_TIMEOUT_SECS)
        try:
            code = self._process.wait()
        except BaseException:
            self._process.stop(None)
            raise
        if code < 0 and not self._is_stopped:
            raise RouterError(f"the router was killed by signal {-code}")
        if code > 0:
            raise RouterError(f"the router ended with exit code {code}; its output says why")

    def stop(self, timeout_secs: float | None = None) -> None:
        """Stops the router from another thread. Requests in flight finish; after `timeout_secs` it is killed."""
        self._is_stopped = True
        self._process.stop(timeout_secs)
