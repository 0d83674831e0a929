"""Agents in Ray against a router and SIMULATED engines in Ray, while engines join, leave and are killed, and the router is killed.

Started by `npm run demo -- ray`. Exits with 1 if a turn failed, or a session moved without a reason.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import httpx
import ray

from ray_actors import EngineActor, RouterActor
from turnout._command import command as turnout

HOST = "127.0.0.1"
AGENTS = 4
# Sessions that each agent starts in each phase, and turns of each session in a phase.
SESSIONS = 4
TURNS = 4
TURN_SECS = 0.5
SIMULATED = [*turnout(), "sim", "--workers", "1", "--first-port", "{port}", "--set", "timeScale=0.05"]
# A client sends a turn again while the router restarts.
RETRY_SECS = 60


class Turn(NamedTuple):
    session: str
    engine: str
    attempts: int
    # Of the attempt that succeeded, as `time.time()`.
    sent: float


@ray.remote(num_cpus=0)
class Agent:
    """Like a worker of verl's agent loops: an actor that runs several sessions at once. Each turn is a chat request to the router."""

    def __init__(self, url: str, name: str) -> None:
        self._http = httpx.AsyncClient(base_url=url, timeout=60, trust_env=False)
        self._name = name
        self._chats: dict[str, list[dict[str, str]]] = {}
        self._turns = 0

    async def run(self) -> list[Turn]:
        """Starts some sessions, and continues all of them for some turns."""
        for _ in range(SESSIONS):
            self._chats[f"{self._name}-{len(self._chats)}"] = []
        turns = await asyncio.gather(*[self._continue(session) for session in self._chats])
        return [turn for session in turns for turn in session]

    async def turns(self) -> int:
        """How many turns have succeeded."""
        return self._turns

    async def _continue(self, session: str) -> list[Turn]:
        messages = self._chats[session]
        turns = []
        for _ in range(TURNS):
            messages.append(
                {"role": "user", "content": f"Turn {len(messages) // 2} of {session}: what does the tool say? " * 8}
            )
            turn, message = await self._send(session, messages)
            messages.append(message)
            turns.append(turn)
            self._turns += 1
            await asyncio.sleep(TURN_SECS)
        return turns

    async def _send(self, session: str, messages: list[dict[str, str]]) -> tuple[Turn, dict[str, str]]:
        body = {"model": "sim", "messages": messages, "max_tokens": 32, "ignore_eos": True}
        until = time.time() + RETRY_SECS
        attempts = 0
        while True:
            attempts += 1
            sent = time.time()
            try:
                response = await self._http.post("/v1/chat/completions", headers={"x-session-id": session}, json=body)
                if response.status_code == 200 or sent > until:
                    response.raise_for_status()
                    message: dict[str, str] = response.json()["choices"][0]["message"]
                    return Turn(session, response.headers["x-turnout-worker"], attempts, sent), message
            except httpx.TransportError:
                if sent > until:
                    raise
            await asyncio.sleep(TURN_SECS)


class Outage(NamedTuple):
    """While the router was restarted, as `time.time()`."""

    start: float
    end: float


class Fleet:
    """The router, the engines and what is done to them. Each event returns when the fleet is complete again."""

    def __init__(self, folder: str) -> None:
        options = {
            "host": HOST,
            "port": free_port(),
            "data_dir": folder,
            "policy": "sticky_least_loaded",
            "worker_header": True,
        }
        options |= {"health_check_interval_secs": 1, "log_level": "error"}
        self.router = RouterActor.options(name="turnout").remote(**options)
        self.engines = [EngineActor.remote("turnout", SIMULATED, HOST) for _ in range(3)]
        self.gone: set[str] = set()
        self.outage = Outage(0, 0)
        ray.get([engine.url.remote() for engine in self.engines])
        ray.get(self.router.wait_ready.remote(3))
        self.url: str = ray.get(self.router.url.remote())

    def nothing(self) -> None:
        pass

    def join(self) -> None:
        self.engines.append(EngineActor.remote("turnout", SIMULATED, HOST))
        ray.get(self.engines[-1].url.remote())
        ray.get(self.router.wait_ready.remote(4))

    def leave(self) -> None:
        engine = self.engines.pop(0)
        self.gone.add(ray.get(engine.url.remote()))
        ray.get(engine.leave.remote())

    def kill_engine(self) -> None:
        engine = self.engines[0]
        self._replaced(engine, lambda: os.kill(ray.get(engine.pid.remote()), signal.SIGKILL))

    def kill_engine_actor(self) -> None:
        engine = self.engines[1]
        self._replaced(engine, lambda: ray.kill(engine, no_restart=False))

    def _replaced(self, engine: Any, kill: Callable[[], None]) -> None:
        """Waits until Ray has restarted the actor, and with it an engine at another port."""
        url = ray.get(engine.url.remote())
        self.gone.add(url)
        kill()
        wait_for(lambda: ray.get(engine.url.remote()) != url)
        ray.get(self.router.wait_ready.remote(3))

    def kill_router(self) -> None:
        pid = ray.get(self.router.pid.remote())
        start = time.time()
        ray.kill(self.router, no_restart=False)
        wait_for(lambda: ray.get(self.router.pid.remote()) != pid)
        ray.get(self.router.wait_ready.remote(3))
        self.outage = Outage(start, time.time())

    def stop(self) -> None:
        ray.get([engine.leave.remote() for engine in self.engines])
        ray.kill(self.router)


class Phase(NamedTuple):
    title: str
    event: Callable[[], None]
    # Whether a client may have to send a turn again.
    sends_again: bool = False


def main() -> int:
    ray.init(
        num_cpus=8, include_dashboard=False, _node_ip_address=HOST, logging_level=logging.ERROR, log_to_driver=False
    )
    with tempfile.TemporaryDirectory(prefix="turnout-ray-") as folder:
        fleet = Fleet(folder)
        print(
            f"router {fleet.url}, 3 SIMULATED engines, {AGENTS} agents that start {SESSIONS} sessions each in each phase\n"
        )
        print(f"{'':42}turns  sent again  sessions that moved  engines", flush=True)
        agents = [Agent.remote(fleet.url, f"agent-{i}") for i in range(AGENTS)]
        last: dict[str, Turn] = {}
        served = Counter[str]()
        problems: list[str] = []
        for phase in (
            Phase("3 engines have registered", fleet.nothing),
            Phase("an engine joins", fleet.join),
            Phase("an engine leaves after its last request", fleet.leave),
            Phase("an engine is killed", fleet.kill_engine),
            Phase("the actor of an engine is killed", fleet.kill_engine_actor),
            Phase("the actor of the router is killed", fleet.kill_router, sends_again=True),
        ):
            problems += run_phase(phase, fleet, agents, last, served)
        print("\nturns of each engine:")
        workers = ray.get(fleet.router.workers.remote())
        for engine in [*workers, *fleet.gone]:
            print(f"  {engine}  {served[engine]:4}{'  gone' if engine in fleet.gone else ''}")
            problems += [] if served[engine] > 0 else [f"{engine} has served no turn"]
        fleet.stop()
    ray.shutdown()
    for problem in problems:
        print(f"NOT AS EXPECTED: {problem}")
    return 1 if problems else 0


def run_phase(phase: Phase, fleet: Fleet, agents: list[Any], last: dict[str, Turn], served: Counter[str]) -> list[str]:
    """Runs some turns of all sessions, and the event after the first of them. Returns what is not as expected.

    Updates the last turn of each session, and the number of turns of each engine.
    """

    def answered() -> int:
        return sum(ray.get([agent.turns.remote() for agent in agents]))

    before = answered()
    running = [agent.run.remote() for agent in agents]
    wait_for(lambda: answered() > before + AGENTS * SESSIONS)
    phase.event()
    turns = [turn for agent in ray.get(running) for turn in agent]
    moved, stray = Counter[str](), Counter[str]()
    for turn in turns:
        previous = last.get(turn.session)
        last[turn.session] = turn
        served[turn.engine] += 1
        if previous is None or previous.engine == turn.engine:
            continue
        moved[turn.session] += 1
        # While a new router has not found the engine of a session healthy, the session goes to another one.
        if previous.engine not in fleet.gone and not fleet.outage.start <= turn.sent <= fleet.outage.end:
            stray[turn.session] += 1
    again = sum(turn.attempts > 1 for turn in turns)
    workers = ray.get(fleet.router.workers.remote())
    print(f"{phase.title:42}{len(turns):5}  {again:10}  {len(moved):19}  {len(workers):7}", flush=True)
    return [
        *([] if len(turns) == len(last) * TURNS else [f"{phase.title}: {len(turns)} of {len(last) * TURNS} turns"]),
        *([] if again == 0 or phase.sends_again else [f"{phase.title}: clients sent {again} turns again"]),
        *([] if len(workers) == len(fleet.engines) else [f"{phase.title}: {len(workers)} engines are registered"]),
        *(f"{phase.title}: {session} moved without a reason" for session in stray),
    ]


def wait_for(done: Callable[[], bool], timeout_secs: float = 120) -> None:
    until = time.monotonic() + timeout_secs
    while not done():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {timeout_secs} s")
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


if __name__ == "__main__":
    sys.exit(main())
