"""Clients for the control API of a router. `AsyncClient` and `Client` have the same methods."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import httpx

from . import _calls as calls
from ._calls import Call, ControlError, Policy, Readiness, Report, Result, T, Worker

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

Role = Literal["regular", "prefill", "decode"]
BreakerState = Literal["open", "closed", "auto"]
_READY_POLL_SECS = 0.2


class WorkerFields(TypedDict, total=False):
    """Settings of a worker. `api_key` is sent to it instead of `--worker-api-key`, and never returned."""

    worker_type: Role
    model_id: str
    priority: int
    cost: float
    bootstrap_port: int
    labels: Mapping[str, str]
    api_key: str


class RewardFields(TypedDict, total=False):
    """Rewards of a session; what is left out stays as it was. The same `id` again changes nothing.

    `reward=None` removes the number.
    """

    reward: float | None
    rewards: Mapping[str, float]
    turn_rewards: Sequence[float] | Mapping[str, float]
    token_rewards: Sequence[float] | Mapping[str, Sequence[float]]
    id: str


class _Address:
    def __init__(self, url: str, api_key: str | None = None, verify: ssl.SSLContext | bool = True) -> None:
        self._url = url.rstrip("/")
        self._control_url = self._url
        self._api_key = api_key
        self._verify = verify

    @property
    def _trust(self) -> ssl.SSLContext | bool:
        """How TLS is verified. False without TLS, because loading all authorities takes a quarter of a second."""
        return self._verify if self._control_url.startswith("https:") else False


class AsyncClient(_Address):
    """Controls the router at `url` (the one of `--admin-port` if set), with the key of `--admin-api-key`.

    Every method raises `ControlError` if the router refuses, and `httpx.TransportError` if it cannot be reached. Cancelling
    a call aborts its request. Proxies of the environment are not used. One client may be used in one event loop after
    another.
    """

    _http: httpx.AsyncClient | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    async def list_workers(self) -> list[str]:
        """The URLs of all workers."""
        return await self._do(calls.list_workers())

    async def workers(self) -> list[Worker]:
        """All workers, with their state."""
        return await self._do(calls.workers())

    async def worker(self, worker_id: str) -> Worker:
        """One worker, by its id (with `--worker-api vllm` its URL)."""
        return await self._do(calls.worker(worker_id))

    async def add_worker(self, url: str, **fields: Unpack[WorkerFields]) -> None:
        """Adds a worker. It gets requests once it passes its health check."""
        await self._do(calls.add_worker(url, fields))

    async def update_worker(self, worker_id: str, **fields: Unpack[WorkerFields]) -> None:
        """Changes the settings of a worker; its URL and role stay."""
        await self._do(calls.update_worker(worker_id, fields))

    async def remove_worker(self, url: str, *, force: bool = False) -> None:
        """Drains a worker: no new requests; those in flight finish, or are aborted with `force`."""
        await self._do(calls.remove_worker(url, force))

    async def set_breaker(self, worker_id: str, state: BreakerState) -> None:
        """Forces a worker's circuit breaker 'open' or 'closed', or lets its requests decide ('auto')."""
        await self._do(calls.set_breaker(worker_id, state))

    async def drain(self, worker_id: str, on: bool = True) -> None:
        """Sends a worker no new requests; `on=False` ends that. It stays registered and finishes those in flight."""
        await self._do(calls.drain(worker_id, on))

    async def quarantine(self, worker_id: str) -> None:
        """Sends a worker's engine no new requests until it has passed its health checks again."""
        await self._do(calls.quarantine(worker_id))

    async def policies(self) -> list[Policy]:
        """The current policies, by model."""
        return await self._do(calls.policies())

    async def set_policy(self, policy: str, *, model: str = "") -> list[Policy]:
        """Changes the policy of one model, or of all models without their own."""
        return await self._do(calls.set_policy(policy, model))

    async def unset_policy(self, model: str) -> list[Policy]:
        """Removes the policy of one model."""
        return await self._do(calls.unset_policy(model))

    async def finish_session(
        self,
        session_id: str,
        *,
        reward: float | None = None,
        rewards: Mapping[str, float] | None = None,
        labels: Sequence[str] | None = None,
    ) -> bool:
        """Ends a session (a trajectory) and stores its outcome with its turns. Returns whether the session was known.

        `rewards` are named parts of the reward; they need the plugin `feed`.
        """
        return await self._do(calls.finish_session(session_id, reward, rewards, labels))

    async def reward(self, session_id: str, **fields: Unpack[RewardFields]) -> None:
        """Gives a session rewards at any time until a consumer of the feed has its group; needs the plugin `feed`.

        `turn_rewards` has a number for each turn of its newest trajectory, or numbers by turn id; `token_rewards` one for each
        sampled token, or lists by turn id. The same `id` again changes nothing. Raises `ControlError` with the code
        `group_taken` when it is too late.
        """
        await self._do(calls.reward(session_id, fields))

    async def wait_idle(self, timeout_secs: float = 60) -> dict[str, int]:
        """Waits until no request is in flight. Returns {}, or at the timeout the requests in flight by worker."""
        return await self._do(calls.wait_idle(timeout_secs))

    async def readiness(self) -> Readiness:
        """Whether requests can be served, and by how many workers."""
        return await self._do(calls.readiness())

    async def wait_ready(self, *, workers: int = 1, timeout_secs: float = 600) -> None:
        """Waits until this many workers are healthy, also behind a proxy that has no router yet. Raises `TimeoutError`."""
        until = time.monotonic() + timeout_secs
        while not _is_enough(await self._do(calls.awaited_readiness()), workers, until):
            await asyncio.sleep(_READY_POLL_SECS)

    async def metrics(self) -> dict[str, float]:
        """All metrics: `name{label="value"}` → value."""
        return await self._do(calls.metrics())

    async def broadcast(
        self,
        path: str,
        body: Any = None,
        *,
        session: str | None = None,
        group: str | None = None,
        timeout_secs: float | None = None,
    ) -> Report:
        """Posts to all engines at once (`/pause_generation`, `/flush_cache`, `/update_weights_from_disk`, …).

        `body` is sent as JSON, bytes as they are. `session` and `group` ask a part of the fleet only. Engines that failed
        are in the report, and `raise_for_failures()` makes an exception of them.
        """
        return await self._do(calls.broadcast(path, body, _part(session, group), timeout_secs))

    async def ask_worker(
        self, worker: str, path: str, body: Any = None, *, method: str = "POST", timeout_secs: float | None = None
    ) -> httpx.Response:
        """Sends a request to one worker, by URL or id, in any state. Returns its response, of any status.

        A path that the router serves itself, such as `/health` or `/metrics`, gets the response of the router.
        """
        return await self._do(calls.ask_worker(worker, path, body, method, timeout_secs))

    async def aclose(self) -> None:
        """Closes the connections."""
        http, self._http = self._http, None
        # Those of an event loop that has ended cannot be closed in another one.
        if http is not None and self._loop is asyncio.get_running_loop():
            await http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _do(self, call: Call[T]) -> T:
        loop = asyncio.get_running_loop()
        # Connections belong to the event loop that opened them; another `asyncio.run` has another one.
        if self._http is None or self._loop is not loop:
            self._http, self._loop = httpx.AsyncClient(verify=self._trust, trust_env=False), loop
        return call.result(await self._http.send(call.request(self._http, self._control_url, self._api_key)))


class Client(_Address):
    """`AsyncClient` for synchronous code: the same methods, which block."""

    _http: httpx.Client | None = None

    def list_workers(self) -> list[str]:
        """The URLs of all workers."""
        return self._do(calls.list_workers())

    def workers(self) -> list[Worker]:
        """All workers, with their state."""
        return self._do(calls.workers())

    def worker(self, worker_id: str) -> Worker:
        """One worker, by its id (with `--worker-api vllm` its URL)."""
        return self._do(calls.worker(worker_id))

    def add_worker(self, url: str, **fields: Unpack[WorkerFields]) -> None:
        """Adds a worker. It gets requests once it passes its health check."""
        self._do(calls.add_worker(url, fields))

    def update_worker(self, worker_id: str, **fields: Unpack[WorkerFields]) -> None:
        """Changes the settings of a worker; its URL and role stay."""
        self._do(calls.update_worker(worker_id, fields))

    def remove_worker(self, url: str, *, force: bool = False) -> None:
        """Drains a worker: no new requests; those in flight finish, or are aborted with `force`."""
        self._do(calls.remove_worker(url, force))

    def set_breaker(self, worker_id: str, state: BreakerState) -> None:
        """Forces a worker's circuit breaker 'open' or 'closed', or lets its requests decide ('auto')."""
        self._do(calls.set_breaker(worker_id, state))

    def drain(self, worker_id: str, on: bool = True) -> None:
        """Sends a worker no new requests; `on=False` ends that. It stays registered and finishes those in flight."""
        self._do(calls.drain(worker_id, on))

    def quarantine(self, worker_id: str) -> None:
        """Sends a worker's engine no new requests until it has passed its health checks again."""
        self._do(calls.quarantine(worker_id))

    def policies(self) -> list[Policy]:
        """The current policies, by model."""
        return self._do(calls.policies())

    def set_policy(self, policy: str, *, model: str = "") -> list[Policy]:
        """Changes the policy of one model, or of all models without their own."""
        return self._do(calls.set_policy(policy, model))

    def unset_policy(self, model: str) -> list[Policy]:
        """Removes the policy of one model."""
        return self._do(calls.unset_policy(model))

    def finish_session(
        self,
        session_id: str,
        *,
        reward: float | None = None,
        rewards: Mapping[str, float] | None = None,
        labels: Sequence[str] | None = None,
    ) -> bool:
        """Ends a session (a trajectory) and stores its outcome with its turns. Returns whether the session was known.

        `rewards` are named parts of the reward; they need the plugin `feed`.
        """
        return self._do(calls.finish_session(session_id, reward, rewards, labels))

    def reward(self, session_id: str, **fields: Unpack[RewardFields]) -> None:
        """Gives a session rewards, as `AsyncClient.reward`."""
        self._do(calls.reward(session_id, fields))

    def wait_idle(self, timeout_secs: float = 60) -> dict[str, int]:
        """Waits until no request is in flight. Returns {}, or at the timeout the requests in flight by worker."""
        return self._do(calls.wait_idle(timeout_secs))

    def readiness(self) -> Readiness:
        """Whether requests can be served, and by how many workers."""
        return self._do(calls.readiness())

    def wait_ready(self, *, workers: int = 1, timeout_secs: float = 600) -> None:
        """Waits until this many workers are healthy, also behind a proxy that has no router yet. Raises `TimeoutError`."""
        until = time.monotonic() + timeout_secs
        while not _is_enough(self._do(calls.awaited_readiness()), workers, until):
            time.sleep(_READY_POLL_SECS)

    def metrics(self) -> dict[str, float]:
        """All metrics: `name{label="value"}` → value."""
        return self._do(calls.metrics())

    def broadcast(
        self,
        path: str,
        body: Any = None,
        *,
        session: str | None = None,
        group: str | None = None,
        timeout_secs: float | None = None,
    ) -> Report:
        """Posts to all engines at once, as `AsyncClient.broadcast`."""
        return self._do(calls.broadcast(path, body, _part(session, group), timeout_secs))

    def ask_worker(
        self, worker: str, path: str, body: Any = None, *, method: str = "POST", timeout_secs: float | None = None
    ) -> httpx.Response:
        """Sends a request to one worker, by URL or id, in any state. Returns its response, of any status.

        A path that the router serves itself, such as `/health` or `/metrics`, gets the response of the router.
        """
        return self._do(calls.ask_worker(worker, path, body, method, timeout_secs))

    def close(self) -> None:
        """Closes the connections."""
        http, self._http = self._http, None
        if http is not None:
            http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _do(self, call: Call[T]) -> T:
        # Read once, because another thread may close it.
        http = self._http
        if http is None:
            http = self._http = httpx.Client(verify=self._trust, trust_env=False)
        return call.result(http.send(call.request(http, self._control_url, self._api_key)))


def _part(session: str | None, group: str | None) -> dict[str, str]:
    return {name: value for name, value in (("session", session), ("group", group)) if value is not None}


def _is_enough(told: Readiness, workers: int, until: float) -> bool:
    if told["healthy_workers"] >= workers and (told["is_ready"] or workers == 0):
        return True
    if time.monotonic() >= until:
        raise TimeoutError(f"{told['healthy_workers']} of {told['total_workers']} workers are healthy, not {workers}")
    return False


__all__ = [
    "AsyncClient",
    "Client",
    "ControlError",
    "Policy",
    "Readiness",
    "Report",
    "Result",
    "RewardFields",
    "Worker",
    "WorkerFields",
]
