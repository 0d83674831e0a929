"""The router as a Ray actor, and engines as Ray actors that register with the router and leave it.

    router = RouterActor.options(name="turnout").remote(port=30000, policy="rollout", data_dir="/shared/turnout")
    vllm = ["vllm", "serve", "MODEL", "--host", "{host}", "--port", "{port}"]
    engines = [EngineActor.options(num_gpus=1).remote("turnout", vllm) for _ in range(8)]
    url = ray.get(router.url.remote())

Requests do not pass through Ray: clients send them to `url`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import ray

from turnout import Router

# Engines with large models take minutes.
START_SECS = 1_800
# Engines register again this often, which changes nothing while the router has them.
REGISTER_SECS = 2
# Runs the engine as the leader of a process group, with a guard that ends the group when the pipe is closed, which the system does however
# the actor ends.
GUARDED = """
exec 3<&0
(trap '' TERM INT HUP; read -r _ <&3; kill -TERM $$; sleep 10; kill -KILL -$$) >/dev/null 2>&1 &
exec "$@" 3<&- </dev/null
"""


# A call may wait for the last requests of an engine; other calls continue meanwhile.
@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=1_000)
class RouterActor:
    """Runs a router on the node of this actor. Arguments are those of `turnout.Router`; without `host` the router listens on the address of the node.

    Ray restarts the actor if it dies. With a fixed `port` clients find the new router at the same URL while the actor stays on its node.
    With `data_dir` the new router has the engines and the sessions of the old one; without it engines register again within seconds, and
    all sessions are new.
    """

    def __init__(self, **options: Any) -> None:
        # With `reuse_port` the router of a killed actor finishes its requests while the new one accepts others.
        defaults = {"host": ray.util.get_node_ip_address(), "prometheus_port": 0, "reuse_port": sys.platform == "linux"}
        folder = options.get("data_dir")
        self._file = None if folder is None else Path(folder) / "ray-engines.json"
        # URLs by the ids of the actors, which stay when Ray restarts an actor.
        self._engines: dict[str, str] = {}
        if self._file is not None and self._file.exists():
            self._engines = json.loads(self._file.read_text())
        self._lock = threading.Lock()
        workers = [*options.pop("worker_urls", []), *self._engines.values()]
        self._router = Router(**{**defaults, **options, "worker_urls": workers or None}).start()

    def url(self) -> str:
        return self._router.url

    def pid(self) -> int | None:
        """The process id of the router."""
        return self._router.pid

    def register(self, engine: str, url: str) -> None:
        """Adds the engine of an actor in place of the one that this actor had before. An engine that is registered stays as it is."""
        with self._lock:
            workers = self._router.list_workers()
            before = self._engines.get(engine)
            if before != url and before in workers:
                self._router.remove_worker(before, force=True)
            if url not in workers:
                self._router.add_worker(url)
            if before != url:
                self._engines[engine] = url
                self._save()

    def leave(self, engine: str) -> None:
        """Removes the engine of an actor. Returns when the last of its requests has finished."""
        with self._lock:
            url = self._engines.pop(engine, None)
            self._save()
            if url is None or url not in self._router.list_workers():
                return
            self._router.remove_worker(url)
        while url in self._router.wait_idle(timeout_secs=1):
            pass

    def wait_ready(self, workers: int, timeout_secs: float = START_SECS) -> None:
        """Waits until this many engines are healthy."""
        self._router.wait_ready(workers=workers, timeout_secs=timeout_secs)

    def workers(self) -> list[str]:
        """The URLs of the engines."""
        return self._router.list_workers()

    def _save(self) -> None:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            new = self._file.with_suffix(".new")
            new.write_text(json.dumps(self._engines))
            os.replace(new, self._file)


@ray.remote(max_restarts=-1, max_task_retries=-1)
class EngineActor:
    """Runs an engine on the node of this actor, registered with the router while it serves.

    `router` is the name of the router's actor. `command` is the command line of the engine, with `{host}` and `{port}` in place of its
    address; the engine has to serve `GET /health`. Without `host` the address is that of the node. If the actor or the engine dies, Ray
    restarts both. An engine that does not serve within `start_secs` is ended.
    """

    def __init__(
        self, router: str, command: list[str], host: str | None = None, start_secs: float = START_SECS
    ) -> None:
        host = host or ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((host, 0))
            port: int = probe.getsockname()[1]
        self._id = ray.get_runtime_context().get_actor_id()
        self._router = ray.get_actor(router)
        self._url = f"http://{host}:{port}"
        words = [word.replace("{host}", host).replace("{port}", str(port)) for word in command]
        self._engine = subprocess.Popen(
            ["sh", "-c", GUARDED, "sh", *words], stdin=subprocess.PIPE, start_new_session=True
        )
        self._left = threading.Event()
        until = time.monotonic() + start_secs
        while not self._serves():
            if self._engine.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the engine does not serve {self._url}/health; its output says why")
            time.sleep(0.2)
        ray.get(self._router.register.remote(self._id, self._url))
        self._registering = threading.Thread(target=self._stay_registered, daemon=True)
        self._registering.start()

    def url(self) -> str:
        return self._url

    def pid(self) -> int:
        """The process id of the engine."""
        return self._engine.pid

    def leave(self) -> None:
        """Ends the engine after its last request."""
        self._left.set()
        self._registering.join()
        ray.get(self._router.leave.remote(self._id))
        assert self._engine.stdin is not None
        self._engine.stdin.close()
        self._engine.wait()
        # What is left of the group: the guard.
        os.killpg(self._engine.pid, signal.SIGKILL)

    def _stay_registered(self) -> None:
        while not self._left.wait(REGISTER_SECS):
            if self._engine.poll() is not None:
                os._exit(1)  # Ray restarts the actor.
            try:
                if self._serves():
                    ray.get(self._router.register.remote(self._id, self._url))
            except ray.exceptions.RayError:
                pass  # Ray is restarting the router's actor.

    def _serves(self) -> bool:
        try:
            return httpx.get(f"{self._url}/health", timeout=5, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False
