"""Helpers of the tests: simulated engines, scripts in separate processes, and waiting."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
import time
import unittest
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

Test = unittest.TestCase | type[unittest.TestCase]
PATIENCE_SECS = 60
ANY_PORTS = {"TURNOUT_PORT": "0", "TURNOUT_PROMETHEUS_PORT": "0"}
LISTENING = re.compile(r"listening on (http://[\d.]+:\d+)")


# Routers of this process.
os.environ["TURNOUT_LOG_LEVEL"] = "error"


class Running:
    """A process and its output, until the end of the test or its class."""

    def __init__(self, test: Test, words: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            list(words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "TURNOUT_LOG_LEVEL": "info", **(env or {})},
        )
        self.output = ""
        if isinstance(test, unittest.TestCase):
            test.addCleanup(self._end)
        else:
            test.addClassCleanup(self._end)

    def says(self, pattern: re.Pattern[str], count: int = 1) -> list[str]:
        """Reads until the output has this text the given number of times."""
        assert self.process.stdout is not None
        while len(found := pattern.findall(self.output)) < count:
            line = self.process.stdout.readline()
            if line == "":
                raise AssertionError(f"ended before it said {pattern.pattern}:\n{self.output}")
            self.output += line
        return [str(each) for each in found]

    def _end(self) -> None:
        assert self.process.stdout is not None
        self.process.terminate()
        # Not read to its end, because a child could keep it open.
        self.process.stdout.close()
        self.process.wait()


class Stub:
    """A server in the place of a router. `targets` are the paths of its requests; all get the same answer."""

    def __init__(self, test: Test, status: int, body: bytes) -> None:
        self.targets: list[str] = []
        targets = self.targets

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                targets.append(self.path)
                self.rfile.read(int(self.headers.get("content-length", 0)))
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}"

        def end() -> None:
            server.shutdown()
            thread.join()
            server.server_close()

        if isinstance(test, unittest.TestCase):
            test.addCleanup(end)
        else:
            test.addClassCleanup(end)


def engines(test: Test, count: int = 2, kind: str = "sglang", settings: Sequence[str] = ()) -> list[str]:
    """URLs of simulated engines."""
    flags = ["--workers", str(count), "--kind", kind, "--set", "timeScale=0", *settings]
    run = Running(test, [sys.executable, "-m", "turnout", "sim", *flags])
    return run.says(re.compile(r"^  (http://\S+)  \(pid", re.M), count)


def script(test: Test, source: str, env: Mapping[str, str] | None = None) -> Running:
    """A Python program in a separate process."""
    return Running(test, [sys.executable, "-c", textwrap.dedent(source)], env)


def generate(url: str, session: str = "s") -> httpx.Response:
    """A generation request of SGLang's clients. Retried while a new router has no healthy engine."""
    body = {"text": "hello", "sampling_params": {"max_new_tokens": 4}}
    answer = httpx.Response(599)

    def is_served() -> bool:
        nonlocal answer
        answer = httpx.post(
            f"{url}/generate", json=body, headers={"x-session-id": session}, timeout=30, trust_env=False
        )
        return answer.status_code != 503

    until(is_served)
    return answer


def is_gone(url: str) -> bool:
    """Whether connections are refused."""
    try:
        httpx.get(f"{url}/liveness", timeout=5, trust_env=False)
    except httpx.ConnectError:
        return True
    except httpx.TransportError:
        pass
    return False


def until(holds: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + PATIENCE_SECS
    while not holds():
        if time.monotonic() > end:
            raise AssertionError("it never came")
        time.sleep(0.02)


def has_ended(pid: int) -> bool:
    """Whether the process has ended, even if it is a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    told = subprocess.run(["/bin/ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return told.stdout.strip()[:1] in ("", "Z")
