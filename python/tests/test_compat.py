"""`turnout-compat`: command lines of the other routers' documentation, and how frameworks use their modules."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import textwrap
import threading
import unittest
import unittest.mock
from pathlib import Path

import httpx

import sglang_router
import vllm_router
from sglang_router.launch_server import RouterArgs as ArgsByLaunchServer
from sglang_router.router_args import RouterArgs as SglangArgs
from turnout import RouterError
from vllm_router.launch_router import launch_router as launch_vllm_router
from vllm_router.router_args import RouterArgs as VllmArgs

from .world import ANY_PORTS, LISTENING, PATIENCE_SECS, Running, engines, generate, is_gone, script, until

# Hosts are replaced by engines of the test, and ports are added at the end.
LINES = [
    """python -m sglang_router.launch_router \\
    --worker-urls http://worker1:8000 http://worker2:8001 \\
    --host 0.0.0.0 \\
    --port 30000 \\
    --policy cache_aware""",
    """python -m sglang_router.launch_router \\
    --worker-urls http://worker1:8000 http://worker2:8001 \\
    --retry-max-retries 3 \\
    --retry-initial-backoff-ms 100 \\
    --retry-max-backoff-ms 10000 \\
    --retry-backoff-multiplier 2.0 \\
    --retry-jitter-factor 0.1""",
    "vllm-router --policy consistent_hash --worker-urls http://worker1:8000,http://worker2:8001",
    # As prime-rl starts it.
    """vllm-router --policy consistent_hash --host 0.0.0.0 --port 8000 --worker-urls http://worker1:8000
    --intra-node-data-parallel-size 1 --request-id-headers x-session-id --worker-startup-timeout-secs 4200
    --prometheus-port 29000""",
    "python -m turnout.launch_router --worker-urls http://worker1:8000 http://worker2:8001 --policy round_robin",
    "python -m turnout serve --worker-urls http://worker1:8000 http://worker2:8001",
    "turnout --worker-urls http://worker1:8000 http://worker2:8001",
]

# `sglang.launch_server` for a machine without GPUs: a simulated engine.
FAKE_ENGINE = """
    import os, sys
    port = sys.argv[sys.argv.index("--port") + 1]
    assert sys.argv[sys.argv.index("--model-path") + 1] == "meta-llama/Meta-Llama-3.1-8B-Instruct"
    words = ["sim", "--workers", "1", "--first-port", port, "--set", "timeScale=0"]
    os.execv(sys.executable, [sys.executable, "-m", "turnout", *words])
"""


class LinesTest(unittest.TestCase):
    def test_lines_of_the_seeds_and_of_frameworks(self) -> None:
        urls = engines(self)
        for line in LINES:
            with self.subTest(line):
                text = line.replace("http://worker1:8000", urls[0]).replace("http://worker2:8001", urls[1])
                words = text.replace("\\\n", " ").split() + ["--port", "0", "--prometheus-port", "0"]
                run = Running(self, words)
                (url,) = run.says(LISTENING)
                self.assertEqual(generate(url.replace("0.0.0.0", "127.0.0.1")).status_code, 200)
                self.assertNotIn("has no effect", run.output)

    def test_engines_and_a_router_by_one_line(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / "sglang"
            package.mkdir()
            (package / "__init__.py").touch()
            (package / "launch_server.py").write_text(textwrap.dedent(FAKE_ENGINE), encoding="utf-8")
            line = """python -m sglang_router.launch_server \\
                --model-path meta-llama/Meta-Llama-3.1-8B-Instruct \\
                --dp-size 4 \\
                --host 127.0.0.1 \\
                --port 0 --router-prometheus-port 0"""
            run = Running(
                self, [*line.replace("\\\n", " ").split(), "--router-log-dir", folder], {"PYTHONPATH": folder}
            )
            (url,) = run.says(LISTENING)
            run.says(re.compile("all 4 engines are ready"))
            self.assertEqual(len(httpx.get(f"{url}/list_workers", trust_env=False).json()["urls"]), 4)
            self.assertEqual(generate(url).status_code, 200)
            run.process.terminate()
            run.says(re.compile("all engines are stopped"))


class ImportsTest(unittest.TestCase):
    urls: list[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.urls = engines(cls)

    def test_the_library_example_of_vllm_router(self) -> None:
        run = script(
            self,
            f"""
            from vllm_router import Router
            router = Router(
                policy="consistent_hash",
                worker_urls={self.urls}
            )
            router.start()
            """,
            ANY_PORTS,
        )
        (url,) = run.says(LISTENING)
        self.assertIn("consistent_hash", run.output)
        self.assertEqual(generate(url).status_code, 200)

    def test_slimes_way(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--sglang-router-ip")
        parser.add_argument("--model-path", default="another's")
        parser.add_argument("--api-key", default="the engine's")
        SglangArgs.add_cli_args(parser, use_router_prefix=True, exclude_host_port=True)
        parser.set_defaults(router_log_level="warn", router_balance_abs_threshold=10)
        parsed = parser.parse_args(["--router-policy", "round_robin", "--router-prefill", "http://a:1", "none"])
        args = SglangArgs.from_cli_args(parsed, use_router_prefix=True)
        self.assertEqual((args.policy, args.log_level, args.balance_abs_threshold), ("round_robin", "warn", 10))
        self.assertEqual(args.prefill_urls, [("http://a:1", None)])
        self.assertIsNone(args.api_key)
        self.assertEqual((args.max_concurrent_requests, args.disable_health_check), (-1, False))
        url = self.urls[0]
        run = script(
            self,
            """
            import argparse, multiprocessing, sys, time
            from sglang_router.launch_router import RouterArgs

            def run_router(args):
                from sglang_router.launch_router import launch_router
                launch_router(args)

            parser = argparse.ArgumentParser()
            RouterArgs.add_cli_args(parser, use_router_prefix=True, exclude_host_port=True)
            router_args = RouterArgs.from_cli_args(parser.parse_args([]), use_router_prefix=True)
            router_args.host, router_args.port = "127.0.0.1", 0
            router_args.prometheus_port = 0
            router_args.disable_circuit_breaker = True
            router_args.disable_health_check = True
            process = multiprocessing.Process(target=run_router, args=(router_args,))
            process.daemon = True
            process.start()
            process.join()
            """,
        )
        (router,) = run.says(LISTENING)
        added = httpx.post(f"{router}/workers", json={"url": url, "worker_type": "regular"}, trust_env=False)
        self.assertEqual(added.status_code, 202)
        self.assertEqual(generate(router).status_code, 200)
        (worker,) = httpx.get(f"{router}/workers", trust_env=False).json()["workers"]
        self.assertEqual(httpx.delete(f"{router}/workers/{worker['id']}", trust_env=False).status_code, 202)
        # When the trainer is killed, the router, its grandchild, ends too.
        run.process.send_signal(signal.SIGKILL)
        until(lambda: is_gone(router))

    def test_verls_and_skyrls_ways(self) -> None:
        self.assertIs(ArgsByLaunchServer, SglangArgs)
        words, environment = SglangArgs(
            host="127.0.0.1", worker_urls=["http://a:1"], log_level="warn", api_key="secret"
        ).command_line()
        self.assertNotIn("secret", words)
        self.assertEqual(environment, {"TURNOUT_API_KEY": '["secret"]'})
        self.assertEqual(words[:2], ["--worker-urls", "http://a:1"])
        words, _ = SglangArgs(cache_threshold=1e-7).command_line()
        self.assertEqual(words[words.index("--cache-threshold") + 1], "0.0000001")
        keys = [("1", "alice", "one", "admin"), ("2", "bob", "two", "admin")]
        words, environment = SglangArgs(control_plane_api_keys=keys).command_line()
        self.assertNotIn("--control-plane-api-keys", words)
        self.assertEqual(environment, {"TURNOUT_ADMIN_API_KEY": '["one", "two"]'})
        with self.assertRaisesRegex(ValueError, 'only keys of the role "admin"'):
            SglangArgs(control_plane_api_keys=[("1", "alice", "one", "user")]).command_line()
        pairs = VllmArgs(prefill_urls=[("http://a:1", None)], decode_urls=["http://b:1"], policy="consistent_hash")
        self.assertFalse(pairs.vllm_pd_disaggregation or pairs.pd_disaggregation)
        words, _ = pairs.command_line()
        self.assertEqual(words[-4:], ["http://a:1", "none", "--decode", "http://b:1"])

    def test_a_framework_hears_why_it_does_not_start(self) -> None:
        with self.assertRaisesRegex(RouterError, "--policy: no such policy"):
            launch_vllm_router(VllmArgs(policy="best", port=0, prometheus_port=0))

    def test_a_framework_hears_that_the_router_was_killed(self) -> None:
        run = script(
            self,
            """
            import os, threading, time
            from vllm_router import Router
            router = Router()
            def tell():
                while router._process.pid is None:
                    time.sleep(0.01)
                os.write(1, f"pid {router._process.pid}\\n".encode())
            threading.Thread(target=tell).start()
            router.start()
            """,
            ANY_PORTS,
        )
        run.says(LISTENING)
        (pid,) = run.says(re.compile(r"^pid (\d+)$", re.M))
        os.kill(int(pid), signal.SIGKILL)
        run.says(re.compile("RouterError: the router was killed by signal 9"))
        self.assertEqual(run.process.wait(), 1)

    def test_a_start_of_one_that_runs_leaves_it_alone(self) -> None:
        router = vllm_router.Router(port=0, prometheus_port=0)
        is_listening, wait, codes = threading.Event(), router._process.wait, list[int]()

        def waited() -> int:
            is_listening.set()
            codes.append(wait())
            return codes[0]

        with unittest.mock.patch.object(router._process, "wait", waited):
            first = threading.Thread(target=router.start)
            first.start()
            self.addCleanup(first.join)
            self.addCleanup(router.stop)
            self.assertTrue(is_listening.wait(PATIENCE_SECS))
            with self.assertRaisesRegex(RouterError, "the router runs already"):
                router.start()
            self.assertTrue(router._process.is_running)
            self.assertEqual(codes, [])
            router.stop()
            first.join(PATIENCE_SECS)
            self.assertEqual(codes, [0])

    def test_versions_are_those_whose_flags_they_are(self) -> None:
        self.assertRegex(sglang_router.__version__, r"^0\.3\.2\+turnout$")
        self.assertRegex(vllm_router.__version__, r"^0\.1\.\d+\+turnout$")

    def test_they_refuse_beside_the_real_ones(self) -> None:
        for package in ("sglang-router", "vllm-router"):
            with tempfile.TemporaryDirectory() as folder:
                info = Path(folder) / f"{package.replace('-', '_')}-0.3.2.dist-info"
                info.mkdir()
                (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.3.2\n", "utf-8")
                run = script(self, f"import {package.replace('-', '_')}", {"PYTHONPATH": folder})
                run.says(re.compile(f"turnout-compat and {package} 0.3.2 are both installed"))
                self.assertEqual(run.process.wait(), 1)


class CommandTest(unittest.TestCase):
    def test_the_commands_are_the_routers(self) -> None:
        folder = os.path.dirname(sys.executable)
        run = Running(self, [f"{folder}/turnout", "--help"])
        run.says(re.compile("RL training code"))
        run = Running(self, [sys.executable, "-m", "turnout.launch_server", "--help"])
        run.says(re.compile("sglang_router.launch_server"))
