"""`from turnout import Router`: start, stop, options and failures."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest
import unittest.mock
from pathlib import Path

import httpx

from turnout import Client, ControlError, Router, RouterError

from .world import ANY_PORTS, PATIENCE_SECS, engines, generate, has_ended, is_gone, script, until


class RouterTest(unittest.TestCase):
    urls: list[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.urls = engines(cls)

    def test_the_seeds_library_example_routes(self) -> None:
        urls = self.urls
        router = Router(policy="consistent_hash", worker_urls=urls, port=0, prometheus_port=0)
        router.start()
        self.addCleanup(router.stop)
        router.wait_ready(workers=2)
        for _ in range(4):
            self.assertEqual(generate(router.url, "one").status_code, 200)
        served = {name: value for name, value in router.metrics().items() if 'status="2xx"' in name}
        self.assertEqual(list(served.values()), [4], f"a session has one worker: {served}")
        router.stop()
        self.assertFalse(router.is_running)
        self.assertTrue(is_gone(router.url))

    def test_a_block_starts_and_stops_it(self) -> None:
        first, second = self.urls
        with Router(worker_urls=[first], port=0, prometheus_port=0) as router:
            self.assertEqual(router.list_workers(), [first])
            router.add_worker(second, labels={"rack": "a"}, priority=60)
            self.assertEqual(router.list_workers(), [first, second])
            added = next(each for each in router.workers() if each["url"] == second)
            self.assertEqual((added["priority"], added["metadata"]["rack"]), (60, "a"))
            router.remove_worker(first)
            self.assertEqual(router.list_workers(), [second])
            self.assertEqual(generate(router.url).status_code, 200)
            self.assertEqual(httpx.get(router.metrics_url, trust_env=False).status_code, 200)
            url = router.url
        self.assertTrue(is_gone(url))

    def test_it_starts_again(self) -> None:
        router = Router(port=0, prometheus_port=0)
        for _ in range(2):
            with router:
                self.assertEqual(router.list_workers(), [])
                with self.assertRaisesRegex(RouterError, "runs already"):
                    router.start()

    def test_a_call_before_the_start_says_so(self) -> None:
        router = Router(port=0, prometheus_port=0)
        for call in (router.list_workers, router.wait_ready, router.wait):
            with self.assertRaisesRegex(RouterError, "the router was not started"):
                call()

    def test_a_name_that_is_no_option_names_the_nearest(self) -> None:
        with self.assertRaisesRegex(TypeError, "no option 'polcy': did you mean 'policy'"):
            Router(polcy="random")  # type: ignore[call-arg]

    def test_a_start_that_fails_has_the_routers_words(self) -> None:
        with self.assertRaisesRegex(RouterError, r"^policy: no such policy.*round_robin"):
            Router(policy="best", port=0, prometheus_port=0).start()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with self.assertRaisesRegex(RouterError, f"--port {port}: another process listens there"):
                Router(port=port, prometheus_port=0).start()

    def test_options_of_every_kind_arrive(self) -> None:
        with Router(
            port=0,
            prometheus_port=0,
            host="0.0.0.0",
            access_log=True,
            cache_threshold=1e-7,
            session_headers=("x-a", "x-b"),
            api_key=["client"],
            admin_api_key=["admin"],
            admin_port=0,
            policy=None,  # type: ignore[arg-type]
        ) as router:
            self.assertRegex(router.url, r"http://127\.0\.0\.1:\d+")
            self.assertEqual(router.policies()[0]["policy"], "rollout")
            self.assertEqual(httpx.get(f"{router.url}/v1/models", trust_env=False).status_code, 401)

    def test_an_element_of_a_list_may_have_commas_and_spaces(self) -> None:
        key = "long-secret,0"
        with tempfile.TemporaryDirectory(prefix="turnout my, ") as folder:
            plugin = Path(folder) / "plugin.mjs"
            plugin.write_text(
                "export default { name: 'mine', create: () => ({ admit: () => null }) };\n", encoding="utf-8"
            )
            with Router(port=0, prometheus_port=0, admin_api_key=[key], plugin=[str(plugin)]) as router:
                with Client(router.url, key) as whole:
                    self.assertEqual(whole.list_workers(), [])
                for part in ("long-secret", "0"):
                    with Client(router.url, part) as client, self.assertRaises(ControlError) as refused:
                        client.list_workers()
                    self.assertEqual(refused.exception.status, 401)

    def test_a_file_of_options_and_one_of_keys_are_read(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            config, keys = Path(folder) / "turnout.yaml", Path(folder) / "keys"
            config.write_text("policy: random\nport: 1\n", encoding="utf-8")
            keys.write_text("# who may steer\n\nadmin\n", encoding="utf-8")
            with Router(config=config, port=0, prometheus_port=0, admin_api_key_file=str(keys)) as router:
                self.assertEqual([each["policy"] for each in router.policies()], ["random"])

    def test_a_router_with_its_keys_in_a_file_of_options_is_controlled(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "turnout.yaml"
            config.write_text("api-key: [DATA]\nadmin-api-key: [ADMIN]\n", encoding="utf-8")
            with Router(config=config, port=0, prometheus_port=0) as router:
                self.assertEqual(router.list_workers(), [])

    def test_over_tls_it_trusts_its_own_certificate(self) -> None:
        openssl = shutil.which("openssl", path=os.defpath)
        if openssl is None:
            self.skipTest("openssl is not installed")
        with tempfile.TemporaryDirectory() as folder:
            cert, key = f"{folder}/cert.pem", f"{folder}/key.pem"
            make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=elsewhere"
            subprocess.run([openssl, *make.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
            with Router(port=0, prometheus_port=0, tls_cert_path=cert, tls_key_path=key) as router:
                self.assertRegex(router.url, "^https://")
                self.assertEqual(router.list_workers(), [])
                with self.assertRaises(httpx.ConnectError):
                    Client(router.url).list_workers()
            config = Path(folder) / "turnout.yaml"
            config.write_text(f"tls-cert-path: {cert}\ntls-key-path: {key}\n", encoding="utf-8")
            with Router(config=config, port=0, prometheus_port=0) as router:
                self.assertEqual(router.list_workers(), [])

    def test_a_wait_whose_router_another_thread_stops_has_its_exit_code(self) -> None:
        router = Router(port=0, prometheus_port=0).start()
        process = router._process._process
        assert process is not None
        look, has_looked, is_stopped, codes = process.poll, threading.Event(), threading.Event(), list[int]()

        def slow_look() -> int | None:
            code = look()
            # The router is stopped between the look of the thread that waits and what it does then.
            if threading.current_thread() is waiting:
                has_looked.set()
                is_stopped.wait(PATIENCE_SECS)
            return code

        waiting = threading.Thread(target=lambda: codes.append(router.wait()))
        parent = unittest.mock.Mock(is_alive=lambda: True)
        with (
            unittest.mock.patch.object(process, "poll", slow_look),
            unittest.mock.patch("multiprocessing.parent_process", lambda: parent),
        ):
            waiting.start()
            self.assertTrue(has_looked.wait(PATIENCE_SECS))
            router.stop()
            is_stopped.set()
            waiting.join(PATIENCE_SECS)
        self.assertEqual(codes, [0])

    def test_it_ends_with_a_python_that_is_killed(self) -> None:
        run = script(
            self,
            """
            import os, time
            from turnout import Router
            router = Router().start()
            # A child that was forked while the router ran, and outlives the parent.
            child = os.fork()
            if child == 0:
                time.sleep(600)
            # One write, between the lines that the router logs.
            os.write(1, f"router {router.pid} {router.url} child {child}\\n".encode())
            time.sleep(600)
            """,
            ANY_PORTS,
        )
        (line,) = run.says(re.compile(r"^(router .*)$", re.M))
        _, pid, url, _, child = line.split()
        self.addCleanup(os.kill, int(child), signal.SIGKILL)
        self.assertFalse(is_gone(url))
        run.process.send_signal(signal.SIGKILL)
        until(lambda: is_gone(url))
        until(lambda: has_ended(int(pid)))

    def test_ctrl_c_is_for_python(self) -> None:
        run = script(
            self,
            """
            import os, signal
            from turnout import Router
            os.setpgrp()
            # The signal may be ignored here: nohup does that.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with Router() as router:
                try:
                    os.killpg(0, signal.SIGINT)
                    signal.pause()
                except KeyboardInterrupt:
                    os.write(1, f"served after it: {router.list_workers()}\\n".encode())
            os.write(1, f"ended {router.wait()}\\n".encode())
            """,
            ANY_PORTS,
        )
        run.says(re.compile(r"served after it: \[\]"))
        run.says(re.compile(r"ended 0"))
