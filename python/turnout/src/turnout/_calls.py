"""Requests and responses of the router's control API, declared once for both clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypedDict, TypeVar
from urllib.parse import quote, urlencode

import httpx

T = TypeVar("T")


class ControlError(Exception):
    """The router refused a call. `code` is the reason if the response has one, for example `WORKER_NOT_FOUND`."""

    def __init__(self, status: int, code: str | None, message: str) -> None:
        # Processes hand each other exceptions as their `args`, and make them again from these.
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} ({self.status}{'' if self.code is None else f' {self.code}'})"


class Worker(TypedDict, total=False):
    """A worker of `GET /workers`. The fields depend on `--worker-api`; `url` is always set."""

    id: str
    url: str
    model_id: str
    worker_type: str
    is_healthy: bool
    load: int
    status: str
    circuit_breaker: str
    engine: str | None
    weight_version: str | None
    models: list[str] | None
    not_serving_because: list[str]
    last_minute: dict[str, float | None]
    bootstrap_port: int | None
    dp_rank: int | None
    priority: int
    cost: float
    metadata: dict[str, str]


class Policy(TypedDict):
    """A policy; `model` is '' for all models without their own."""

    model: str
    policy: str
    state: dict[str, Any]


class Readiness(TypedDict):
    is_ready: bool
    healthy_workers: int
    total_workers: int


class _Result(TypedDict):
    worker: str
    status: int | None
    ms: float


class Result(_Result, total=False):
    """The result of one engine: `body`, or `error`; `status` is None without a response."""

    body: Any
    error: str


@dataclass(frozen=True)
class Report:
    """The results of a broadcast, by engine."""

    results: list[Result]
    ok: int
    failed: int
    # 200, 207 if some failed; if all did, the error status of all, or 502.
    status: int

    @property
    def failures(self) -> list[Result]:
        """The results of the engines that did not do it: no response, no 2xx, or `"success": false` in the response."""
        return [result for result in self.results if not _is_done(result)]

    def raise_for_failures(self) -> Report:
        """Raises `ControlError` with the failed workers, if any failed."""
        if self.failed == 0:
            return self
        words = "; ".join(f"{each['worker']}: {_reason(each)}" for each in self.failures)
        raise ControlError(self.status, None, words)


def _is_done(result: Result) -> bool:
    body = result.get("body")
    return 200 <= (result["status"] or 0) < 300 and not (isinstance(body, dict) and body.get("success") is False)


def _reason(result: Result) -> Any:
    status = result["status"] or 0
    return result.get("error", result.get("body") if 200 <= status < 300 else status)


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request to the router and how its response is read."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    # Bytes are sent unchanged, everything else as JSON.
    body: Any = None
    # Seconds without a byte of the response; None for no timeout.
    timeout_secs: float | None = 30
    # Statuses other than 2xx that are no errors.
    also: Iterable[int] = ()

    def request(self, client: httpx.Client | httpx.AsyncClient, url: str, api_key: str | None) -> httpx.Request:
        headers = {**self.headers, **({} if api_key is None else {"authorization": f"Bearer {api_key}"})}
        is_bytes = isinstance(self.body, (bytes, bytearray))
        content: dict[str, Any] = {} if self.body is None else {"content" if is_bytes else "json": self.body}
        timeout = httpx.Timeout(self.timeout_secs, connect=10)
        path = self.path if self.path.startswith("/") else f"/{self.path}"
        # Not httpx's `params`: even empty ones replace the query that a path has.
        if self.query:
            path += ("&" if "?" in path else "?") + urlencode(self.query)
        return client.build_request(self.method, url + path, headers=headers, timeout=timeout, **content)

    def result(self, response: httpx.Response) -> T:
        if response.is_success or response.status_code in self.also:
            return self.read(response)
        raise _refusal(response)


def _object(response: httpx.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _told(response: httpx.Response, field: str) -> dict[str, Any]:
    """The router's answer. Without this field it is another one's with the same status, such as a proxy's."""
    told = _object(response)
    if field not in told:
        raise _refusal(response)
    return told


def _refusal(response: httpx.Response) -> ControlError:
    said = _object(response)
    error = said.get("error", said.get("message"))
    message = error.get("message") if isinstance(error, dict) else error
    code = said.get("code") or response.headers.get("x-turnout-error")
    return ControlError(response.status_code, code, str(message or response.text.strip() or "refused"))


def _nothing(_: httpx.Response) -> None:
    return None


def list_workers() -> Call[list[str]]:
    return Call("GET", "/list_workers", lambda answer: list(answer.json()["urls"]))


def workers() -> Call[list[Worker]]:
    return Call("GET", "/workers", lambda answer: list(answer.json()["workers"]))


def worker(worker_id: str) -> Call[Worker]:
    return Call("GET", f"/workers/{quote(worker_id, safe='')}", lambda answer: answer.json())


def add_worker(url: str, fields: Mapping[str, Any]) -> Call[None]:
    return Call("POST", "/workers", _nothing, body={"url": url, **_given(fields)})


def update_worker(worker_id: str, fields: Mapping[str, Any]) -> Call[None]:
    return Call("PATCH", f"/workers/{quote(worker_id, safe='')}", _nothing, body=_given(fields))


def remove_worker(url: str, force: bool) -> Call[None]:
    return Call("POST", "/remove_worker", _nothing, query={"url": url, **({"force": "true"} if force else {})})


def set_breaker(worker_id: str, state: str) -> Call[None]:
    return Call("POST", f"/workers/{quote(worker_id, safe='')}/breaker", _nothing, body={"state": state})


def drain(worker_id: str, on: bool) -> Call[None]:
    return Call("POST", f"/workers/{quote(worker_id, safe='')}/drain", _nothing, body={"state": "on" if on else "off"})


def quarantine(worker_id: str) -> Call[None]:
    return Call("POST", f"/workers/{quote(worker_id, safe='')}/quarantine", _nothing)


def policies() -> Call[list[Policy]]:
    return Call("GET", "/policies", _policies)


def set_policy(policy: str, model: str) -> Call[list[Policy]]:
    return Call("PUT", "/policies", _policies, body={"policy": policy, "model": model})


def unset_policy(model: str) -> Call[list[Policy]]:
    return Call("DELETE", "/policies", _policies, query={"model": model})


def finish_session(
    session_id: str, reward: float | None, rewards: Mapping[str, float] | None, labels: Sequence[str] | None
) -> Call[bool]:
    return Call(
        "POST",
        "/finish_session",
        lambda answer: bool(answer.json()["known"]),
        query={"session_id": session_id},
        body=_given({"reward": reward, "rewards": rewards, "labels": labels}),
    )


def reward(session_id: str, fields: Mapping[str, Any]) -> Call[None]:
    # None is a value here: it removes the number that an earlier call gave.
    removed = {"reward": None} if "reward" in fields and fields["reward"] is None else {}
    body = {**_given(fields), **removed}
    return Call("POST", f"/trajectories/{quote(session_id, safe='')}/reward", _nothing, body=body)


def take(query: Mapping[str, str], timeout_secs: float) -> Call[bytes]:
    return Call("GET", "/feed", lambda answer: answer.content, query=query, timeout_secs=timeout_secs)


def claim(act: str, leases: Sequence[str], lease_secs: float | None) -> Call[list[str]]:
    """Its result: the leases that are lost."""
    body = _given({"leases": list(leases), "lease_secs": lease_secs})
    return Call("POST", f"/feed/{act}", lambda answer: list(_told(answer, "lost")["lost"]), body=body, also=[409])


def feed_stats() -> Call[dict[str, Any]]:
    return Call("GET", "/feed/stats", lambda answer: dict(answer.json()))


def wait_idle(timeout_secs: float) -> Call[dict[str, int]]:
    return Call(
        "POST",
        "/fleet/wait_idle",
        lambda answer: _told(answer, "idle").get("in_flight", {}),
        body={"timeout_secs": timeout_secs},
        timeout_secs=timeout_secs + 30,
        also=[504],
    )


def readiness() -> Call[Readiness]:
    return Call("GET", "/readiness", _readiness, also=[503])


def awaited_readiness() -> Call[Readiness]:
    """As `readiness`. A proxy that has no router behind it yet says that none is ready."""
    return Call("GET", "/readiness", _awaited_readiness, also=[502, 503, 504])


def metrics() -> Call[dict[str, float]]:
    return Call("GET", "/metrics", lambda answer: _samples(answer.text))


def broadcast(path: str, body: Any, query: Mapping[str, str], timeout_secs: float | None) -> Call[Report]:
    return Call("POST", path, _report, query=query, body=body, timeout_secs=timeout_secs, also=range(300, 600))


def ask_worker(worker: str, path: str, body: Any, method: str, timeout_secs: float | None) -> Call[httpx.Response]:
    headers = {"x-turnout-worker": worker}
    anything = range(300, 600)
    return Call(
        method, path, lambda answer: answer, headers=headers, body=body, timeout_secs=timeout_secs, also=anything
    )


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _policies(answer: httpx.Response) -> list[Policy]:
    return list(answer.json()["policies"])


def _readiness(answer: httpx.Response) -> Readiness:
    told = _told(answer, "status")
    return {
        "is_ready": answer.status_code == 200,
        "healthy_workers": told.get("healthy_workers", 0),
        "total_workers": told.get("total_workers", 0),
    }


def _awaited_readiness(answer: httpx.Response) -> Readiness:
    try:
        return _readiness(answer)
    except ControlError:
        if answer.status_code == 200:
            raise
        return {"is_ready": False, "healthy_workers": 0, "total_workers": 0}


def _report(answer: httpx.Response) -> Report:
    told = _told(answer, "results")
    return Report(told["results"], told["ok"], told["failed"], answer.status_code)


def _samples(text: str) -> dict[str, float]:
    """`name{labels}` → value, from the Prometheus text format."""
    lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}
