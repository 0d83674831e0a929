"""`AsyncClient` and `Client` against a router and simulated engines, and against a stub of a router."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import pickle
import unittest
import warnings
from collections.abc import Callable

import httpx

from turnout import AsyncClient, Client, ControlError, Router

from .world import PATIENCE_SECS, Stub, engines, generate

NOBODY = "http://127.0.0.1:9"


class ClientTest(unittest.IsolatedAsyncioTestCase):
    urls: list[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.urls = engines(cls)

    def setUp(self) -> None:
        self.router = Router(worker_urls=self.urls, policy="sticky_least_loaded", port=0, prometheus_port=0)
        self.router.start()
        self.addCleanup(self.router.stop)

    async def asyncSetUp(self) -> None:
        self.client = AsyncClient(self.router.url)
        self.addAsyncCleanup(self.client.aclose)
        await self.client.wait_ready(workers=2)

    async def test_workers_are_read_added_changed_and_removed(self) -> None:
        client = self.client
        self.assertEqual(await client.list_workers(), self.urls)
        await client.add_worker(NOBODY, labels={"group": "spare"})
        known = {each["url"]: each for each in await client.workers()}
        self.assertEqual(list(known), [*self.urls, NOBODY])
        spare = known[NOBODY]
        self.assertFalse(spare["is_healthy"])
        await client.update_worker(spare["id"], priority=7, labels={"rack": "b"})
        changed = await client.worker(spare["id"])
        self.assertEqual((changed["priority"], changed["metadata"]["rack"]), (7, "b"))
        await client.remove_worker(NOBODY)
        self.assertEqual(await client.list_workers(), self.urls)
        with self.assertRaises(ControlError) as refused:
            await client.worker(spare["id"])
        self.assertEqual((refused.exception.status, refused.exception.code), (404, "WORKER_NOT_FOUND"))

    async def test_a_breaker_is_forced(self) -> None:
        first = (await self.client.workers())[0]
        await self.client.set_breaker(first["id"], "open")
        self.assertEqual((await self.client.worker(first["id"]))["circuit_breaker"], "open")

    async def test_a_worker_is_drained_and_quarantined(self) -> None:
        first = (await self.client.workers())[0]["id"]
        await self.client.drain(first)
        self.assertEqual((await self.client.worker(first))["not_serving_because"], ["draining"])
        await self.client.drain(first, on=False)
        self.assertEqual((await self.client.worker(first))["not_serving_because"], [])
        await self.client.quarantine(first)
        await self.client.wait_ready(workers=2)
        with self.assertRaises(ControlError) as refused:
            await self.client.quarantine("unknown")
        self.assertEqual(refused.exception.status, 400)

    async def test_policies_change(self) -> None:
        self.assertEqual([each["policy"] for each in await self.client.policies()], ["sticky_least_loaded"])
        changed = await self.client.set_policy("random", model="tiny")
        self.assertEqual({each["model"]: each["policy"] for each in changed}["tiny"], "random")
        self.assertEqual(len(await self.client.unset_policy("tiny")), 1)
        with self.assertRaisesRegex(ControlError, 'There is no policy "best"'):
            await self.client.set_policy("best")

    async def test_sessions_end(self) -> None:
        self.assertEqual((await asyncio.to_thread(generate, self.router.url, "trajectory")).status_code, 200)
        self.assertTrue(await self.client.finish_session("trajectory"))
        self.assertFalse(await self.client.finish_session("trajectory"))
        with self.assertRaisesRegex(ControlError, "No turn of session 'trajectory' is on record"):
            await self.client.finish_session("trajectory", reward=1.0, labels=["solved"])
        with self.assertRaisesRegex(ControlError, 'labels: "solved" is not a list or an object'):
            await self.client.finish_session("trajectory", labels="solved")

    async def test_a_control_reaches_all_and_the_dead_are_named(self) -> None:
        report = await self.client.broadcast("/pause_generation", {"mode": "in_place"})
        self.assertEqual((report.ok, report.failed), (2, 0))
        self.assertIs(report.raise_for_failures(), report)
        # Without the slash that would separate it from the port.
        await self.client.broadcast("continue_generation", b"{}")
        refused = await self.client.broadcast("/set_what_engines_do_not_have")
        self.assertEqual((refused.status, refused.failed), (404, 2))
        await self.client.add_worker(NOBODY, labels={"group": "spare"})
        report = await self.client.broadcast("/flush_cache")
        self.assertEqual((report.ok, report.failed), (2, 1))
        with self.assertRaisesRegex(ControlError, NOBODY):
            report.raise_for_failures()
        for alone in (
            await self.client.broadcast("/flush_cache", group="spare"),
            await self.client.broadcast("/flush_cache?group=spare"),
        ):
            self.assertEqual([each["worker"] for each in alone.results], [NOBODY])

    async def test_a_call_that_is_cancelled_is_cancelled_at_the_engines(self) -> None:
        asked, left = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if (await reader.readline()).startswith(b"POST /flush_cache "):
                asked.set()
                while await reader.read(1024) != b"":
                    pass
                left.set()
            writer.close()

        engine = await asyncio.start_server(serve, "127.0.0.1", 0)
        await self.client.add_worker(f"http://127.0.0.1:{engine.sockets[0].getsockname()[1]}")
        call = asyncio.create_task(self.client.broadcast("/flush_cache"))
        await asyncio.wait_for(asked.wait(), PATIENCE_SECS)
        call.cancel()
        await asyncio.wait_for(left.wait(), PATIENCE_SECS)
        engine.close()

    async def test_one_worker_answers_for_itself(self) -> None:
        answer = await self.client.ask_worker(self.urls[1], "/model_info", method="GET")
        direct = await asyncio.to_thread(httpx.get, f"{self.urls[1]}/model_info", trust_env=False)
        self.assertEqual((answer.status_code, answer.content), (200, direct.content))
        refused = await self.client.ask_worker(NOBODY, "/model_info", method="GET")
        self.assertEqual(refused.status_code, 404)

    async def test_it_tells_when_nothing_is_under_way(self) -> None:
        self.assertEqual(await self.client.wait_idle(5), {})
        metrics = await self.client.metrics()
        self.assertEqual(metrics["turnout_requests_in_flight"], 0)

    async def test_a_worker_that_never_comes_is_waited_for_in_vain(self) -> None:
        with self.assertRaisesRegex(TimeoutError, "2 of 2 workers are healthy, not 3"):
            await self.client.wait_ready(workers=3, timeout_secs=0.1)

    async def test_a_key_is_sent(self) -> None:
        with Router(port=0, prometheus_port=0, admin_api_key=["admin"]) as router:
            async with AsyncClient(router.url) as client:
                with self.assertRaises(ControlError) as refused:
                    await client.workers()
                self.assertEqual(refused.exception.status, 401)
            async with AsyncClient(router.url, api_key="admin") as client:
                self.assertEqual(await client.workers(), [])
                self.assertEqual(router.workers(), [])

    async def test_nobody_there_is_an_error_of_the_transport(self) -> None:
        async with AsyncClient(NOBODY) as client:
            with self.assertRaises(httpx.TransportError):
                await client.workers()


class BlockingTest(unittest.TestCase):
    def setUp(self) -> None:
        self.router = Router(port=0, prometheus_port=0).start()
        self.addCleanup(self.router.stop)

    def test_a_client_is_used_in_one_event_loop_after_another(self) -> None:
        client = AsyncClient(self.router.url)
        # The connections of a loop that has ended are closed by the garbage collection.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for _ in range(2):
                self.assertEqual(asyncio.run(client.list_workers()), [])
            asyncio.run(client.aclose())
            gc.collect()

    def test_a_block_closes_the_synchronous_client(self) -> None:
        with Client(self.router.url) as client:
            self.assertEqual(client.list_workers(), [])
            http = client._http
        assert http is not None
        self.assertTrue(http.is_closed)


class StubTest(unittest.IsolatedAsyncioTestCase):
    async def test_the_query_of_a_path_is_sent_with_the_clients_own(self) -> None:
        router = Stub(self, 200, b'{"results": [], "ok": 0, "failed": 0}')
        async with AsyncClient(router.url) as client:
            await client.broadcast("/pause?mode=keep")
            await client.broadcast("/sleep?level=2", session="a b", group="c&d")
            await client.broadcast("/sleep", group="c&d")
            await client.ask_worker(NOBODY, "/sleep?level=1")
        sent = ["/pause?mode=keep", "/sleep?level=2&session=a+b&group=c%26d", "/sleep?group=c%26d", "/sleep?level=1"]
        self.assertEqual(router.targets, sent)

    def test_also_by_the_synchronous_client(self) -> None:
        router = Stub(self, 200, b'{"results": [], "ok": 0, "failed": 0}')
        client = Client(router.url)
        self.addCleanup(client.close)
        client.broadcast("/pause?mode=keep", session="s")
        client.ask_worker(NOBODY, "/sleep?level=1")
        self.assertEqual(router.targets, ["/pause?mode=keep&session=s", "/sleep?level=1"])

    async def test_an_engine_that_answers_200_with_success_false_has_failed(self) -> None:
        results = [
            {"worker": "http://a", "status": 200, "ms": 1.0, "body": {"success": True}},
            {"worker": "http://b", "status": 200, "ms": 1.0, "body": {"message": "no such file", "success": False}},
        ]
        body = json.dumps({"results": results, "ok": 1, "failed": 1}).encode()
        async with AsyncClient(Stub(self, 207, body).url) as client:
            report = await client.broadcast("/update_weights_from_disk", body={"model_path": "/w"})
        self.assertEqual([each["worker"] for each in report.failures], ["http://b"])
        with self.assertRaisesRegex(ControlError, "http://b: .*no such file") as raised:
            report.raise_for_failures()
        self.assertNotIn("http://a", str(raised.exception))

    async def test_what_a_proxy_says_is_not_taken_for_the_routers_answer(self) -> None:
        for body in (b"<html>504</html>", b'{"message": "The upstream server is timing out"}'):
            for status in (503, 504):
                client = Client(Stub(self, status, body).url)
                self.addCleanup(client.close)
                calls: list[Callable[[], object]] = [client.wait_idle, client.readiness]
                for call in calls:
                    with self.assertRaises(ControlError) as refused:
                        call()
                    self.assertEqual(refused.exception.status, status)
                # A router is waited for also behind a proxy.
                with self.assertRaises(TimeoutError):
                    client.wait_ready(timeout_secs=0)

    async def test_the_routers_own_timeout_and_503_are_answers(self) -> None:
        busy = Stub(self, 504, b'{"idle": false, "in_flight": {"http://a": 2}}')
        async with AsyncClient(busy.url) as client:
            self.assertEqual(await client.wait_idle(0), {"http://a": 2})
        empty = Stub(
            self, 503, b'{"status": "not_ready", "reason": "no healthy workers available", "total_workers": 1}'
        )
        async with AsyncClient(empty.url) as client:
            expected = {"is_ready": False, "healthy_workers": 0, "total_workers": 1}
            self.assertEqual(await client.readiness(), expected)


class ErrorTest(unittest.TestCase):
    def test_an_error_is_the_same_in_another_process(self) -> None:
        for code, text in (("X", "no such worker (404 X)"), (None, "no such worker (404)")):
            error = ControlError(404, code, "no such worker")
            for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
                self.assertIs(type(again), ControlError)
                self.assertEqual((again.status, again.code, str(again)), (404, code, text))
