"""`turnout.feed` against a router and simulated engines."""

from __future__ import annotations

import importlib.util
import logging
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from turnout import AsyncClient, ControlError, Router
from turnout._calls import Call
from turnout._command import command
from turnout._groups import read_arrow, read_ndjson
from turnout.feed import Feed, Group, LeaseLost, Row

from .world import PATIENCE_SECS, Stub, engines, script, until

REPOSITORY = Path(__file__).resolve().parents[2]
PROMPT = "What is of ten?"
SAMPLED = 8


def as_values(thing: Group | Row) -> dict[str, Any]:
    """All fields, arrays with their types. NaN equals NaN in them."""

    def value(each: Any) -> Any:
        if isinstance(each, np.ndarray):
            return str(each.dtype), each.shape, each.tobytes()
        return [as_values(row) if isinstance(row, Row) else row for row in each] if isinstance(each, list) else each

    return {field.name: value(getattr(thing, field.name)) for field in fields(thing)}


class FeedTest(unittest.TestCase):
    urls: list[str]
    model: str

    @classmethod
    def setUpClass(cls) -> None:
        cls.urls = engines(cls, 1, settings=("experts=300", "layers=4", "denseLayers=1", "weightVersion=7"))
        folder = tempfile.TemporaryDirectory(prefix="turnout-feed-")
        cls.addClassCleanup(folder.cleanup)
        cls.model = folder.name
        subprocess.run([*command(), "sim", "--write-tokenizer", cls.model], check=True, capture_output=True)

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="turnout-feed-")
        self.addCleanup(folder.cleanup)
        self.data = folder.name
        self.router = self.start()

    def start(self, port: int = 0) -> Router:
        router = Router(
            worker_urls=self.urls,
            port=port,
            prometheus_port=0,
            tokenizer_path=self.model,
            data_dir=self.data,
            plugin=["radix-tree", 'feed:{"groupSize":2}'],
        )
        router.start()
        self.addCleanup(router.stop)
        router.wait_ready()
        return router

    def feed(self, **options: Any) -> Feed:
        feed = Feed(self.router.url, **{"wait_secs": 20, **options})
        self.addCleanup(feed.close)
        return feed

    def turn(self, session: str, group: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A generation of a member of a group."""
        body = {"text": PROMPT, "return_logprob": True, "sampling_params": {"max_new_tokens": SAMPLED}, **(more or {})}
        headers = {"x-session-id": session, "x-turnout-group": group}
        answer = httpx.post(f"{self.router.url}/generate", json=body, headers=headers, timeout=30, trust_env=False)
        self.assertEqual(answer.status_code, 200, answer.text)
        said: dict[str, Any] = answer.json()
        return said

    def member(self, session: str, group: str, reward: float) -> dict[str, Any]:
        said = self.turn(session, group)
        self.router.finish_session(session, reward=reward)
        return said

    def group(self, name: str) -> None:
        for reward, member in enumerate("ab"):
            self.member(f"{name}-{member}", name, reward)

    def test_a_group_comes_with_its_arrays(self) -> None:
        said = self.member("s1", "g", 1)
        meta = self.turn("s2", "g", {"return_routed_experts": True})["meta_info"]
        self.router.finish_session("s2", rewards={"format": 0.5}, labels=["math"])
        self.router.reward("s2", reward=0.25, turn_rewards=[2], token_rewards=list(range(SAMPLED)), id="judge-1")
        with self.feed(consumer="trainer") as feed:
            group = next(iter(feed))
            self.assertEqual((group.name, group.size, group.because, group.deliveries), ("g", 2, "all", 1))
            self.assertEqual((group.version, group.version_names), ("7", ["7"]))
            first, second = group.rows
            sampled = [ids for _, ids, _ in said["meta_info"]["output_token_logprobs"]]
            logprobs = [each for each, _, _ in said["meta_info"]["output_token_logprobs"]]
            prompt = len(first.tokens) - SAMPLED
            self.assertGreater(prompt, 0)
            self.assertEqual(first.tokens[prompt:].tolist(), sampled)
            self.assertEqual(first.loss_mask.tolist(), [0] * prompt + [1] * SAMPLED)
            np.testing.assert_array_equal(first.logprobs, np.array([0] * prompt + logprobs, np.float32))
            self.assertEqual(first.versions.tolist(), [-1] * prompt + [0] * SAMPLED)
            self.assertEqual((first.session, first.reward, first.rewards, first.labels), ("s1", 1, {}, []))
            self.assertEqual((first.lag, first.flags, first.finish_reason), (0, [], "length"))
            self.assertEqual([(turn["from"], turn["to"]) for turn in first.turns], [(0, prompt + SAMPLED)])
            self.assertIsNone(first.token_rewards)
            self.assertTrue(np.isnan(first.turn_rewards).all() and first.turn_rewards.shape == (1,))
            self.assertEqual((second.session, second.reward, second.rewards), ("s2", 0.25, {"format": 0.5}))
            self.assertEqual((second.labels, second.turn_rewards.tolist()), (["math"], [2]))
            given = second.token_rewards
            assert given is not None
            self.assertTrue(np.isnan(given[:prompt]).all())
            self.assertEqual(given[prompt:].tolist(), list(range(SAMPLED)))
            self.assertIn("routed_experts", meta)
            experts = second.routed_experts
            assert experts is not None and first.routed_experts is None
            self.assertEqual((experts.dtype, len(experts)), (np.dtype(np.uint16), len(second.tokens) - 1))
            types = [getattr(first, name).dtype for name in ("tokens", "loss_mask", "logprobs", "versions")]
            self.assertEqual(types, [np.int32, np.uint8, np.float32, np.int32])
            self.assertTrue(all(array.flags.writeable for array in (first.tokens, first.logprobs, experts)))
            feed.ack(group)
            self.assertEqual((feed.stats()["acked"], feed.take(wait_secs=0)), (1, []))

    def test_arrow_and_ndjson_give_equal_groups(self) -> None:
        self.turn("s1", "g", {"return_routed_experts": True, "top_logprobs_num": 2})
        self.router.finish_session("s1", reward=1.5, rewards={"a": 1, "b": 2}, labels=["x"])
        # One of its two turns has a reward.
        text = PROMPT + self.turn("s2", "g")["text"]
        self.router.reward("s2", turn_rewards=[2])
        turn = self.turn("s2", "g", {"text": text + " of ten"})
        self.assertEqual(len(turn["meta_info"]["output_token_logprobs"]), SAMPLED)
        self.router.finish_session("s2")
        got = []
        for kind in ("arrow", "ndjson"):
            with self.feed(format=kind) as feed:
                group = next(iter(feed))
            got.append({**as_values(group), "lease": "", "deliveries": 0})
        self.assertEqual(got[0], got[1])
        self.assertEqual([row["session"] for row in got[0]["rows"]], ["s1", "s2"])
        self.assertIsNotNone(got[0]["rows"][0]["routed_experts"])
        np.testing.assert_array_equal(group.rows[1].turn_rewards, [2, np.nan])
        self.assertEqual(Feed(self.router.url).format, "arrow")

    def test_the_trainer_of_the_guide_refuses_a_row_without_reward(self) -> None:
        self.member("s1", "g", 1)
        self.turn("s2", "g")
        self.router.finish_session("s2")
        checkpoint = Path(self.data) / "checkpoint.json"
        words = [sys.executable, str(REPOSITORY / "examples/feed/trainer.py"), self.router.url, "1", str(checkpoint)]
        run = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
        self.assertIn("a row without reward: give the feed needsReward", run.stderr)
        self.assertFalse(checkpoint.exists())
        self.assertEqual(self.feed().stats()["ready"], 1)

    def test_none_removes_a_reward(self) -> None:
        for session, reward in (("s1", 2.0), ("s2", None)):
            self.turn(session, "g")
            self.router.reward(session, reward=2.0, rewards={"a": 1})
            self.router.reward(session, reward=reward)
            self.router.finish_session(session)
        with self.feed() as feed:
            [group] = feed.take()
        self.assertEqual([(row.reward, row.rewards) for row in group.rows], [(2.0, {"a": 1}), (None, {"a": 1})])

    def test_of_a_response_that_breaks_off_whole_groups_are_taken(self) -> None:
        for kind, read in (("ndjson", read_ndjson), ("arrow", read_arrow)):
            self.group(f"{kind}-1")
            self.group(f"{kind}-2")
            raw = httpx.get(f"{self.router.url}/feed?format={kind}", trust_env=False).content
            whole = read(raw, True)
            self.assertEqual([group.name for group in whole], [f"{kind}-1", f"{kind}-2"])
            counts = [len(read(raw[:length], False)) for length in range(0, len(raw), 7)]
            self.assertEqual(sorted(set(counts)), [0, 1] if kind == "ndjson" else [0, 1, 2])
            self.assertEqual(counts, sorted(counts))
            if kind == "arrow":
                with self.assertRaises((ValueError, OSError)):
                    read(raw[: len(raw) // 2], True)

    def test_a_connection_that_breaks_in_a_response_costs_no_whole_group(self) -> None:
        self.group("first")
        self.group("second")
        for kind in ("ndjson", "arrow"):
            with self.feed(format=kind) as feed:
                whole = httpx.get(f"{self.router.url}/feed?format={kind}", trust_env=False).content
                read = read_ndjson if kind == "ndjson" else read_arrow
                cut = next(i for i in range(len(whole)) if len(read(whole[:i], False)) == 1) + 20
                with socket.create_server(("127.0.0.1", 0)) as server:

                    def answer(server: socket.socket, body: bytes, length: int) -> None:
                        connection, _ = server.accept()
                        with connection:
                            connection.recv(65_536)
                            head = f"HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n"
                            connection.sendall(head.encode() + body)

                    thread = threading.Thread(target=answer, args=(server, whole[:cut], len(whole)))
                    thread.start()
                    broken = Feed(f"http://127.0.0.1:{server.getsockname()[1]}", format=kind)
                    with self.assertLogs("turnout.feed", logging.WARNING) as logs:
                        groups = broken.take()
                    thread.join()
                self.assertIn("broke off after 1 groups", logs.output[0])
                self.assertEqual([group.name for group in groups], ["first"])
                feed.nack(*read(whole, True))

    def test_a_group_that_is_given_back_comes_again_with_its_id(self) -> None:
        self.group("g")
        feed = self.feed()
        [group] = feed.take()
        feed.nack(group)
        # Its lease is gone already.
        feed.nack(group)
        [again] = feed.take()
        self.assertEqual((again.id, again.deliveries), (group.id, 2))
        feed.close()
        [last] = self.feed().take()
        self.assertEqual((last.id, last.deliveries), (group.id, 3))

    def test_a_lost_lease_is_an_exception_of_its_own(self) -> None:
        self.group("g")
        slow, other = self.feed(), self.feed()
        [group] = slow.take()
        slow.renew(group)
        self.assertEqual(other.take(wait_secs=0), [])
        slow.renew(group, lease_secs=1)
        [again] = other.take()
        self.assertEqual(again.id, group.id)
        for call in (slow.renew, slow.ack):
            with self.assertRaises(LeaseLost) as lost:
                call(group)
            self.assertEqual(lost.exception.leases, [group.lease])
            # As a pool of processes hands it on.
            passed = pickle.loads(pickle.dumps(lost.exception))
            self.assertEqual((passed.leases, str(passed)), ([group.lease], str(lost.exception)))
        other.ack(again)
        self.assertEqual(self.feed().take(wait_secs=0), [])

    def test_a_group_is_skipped_whose_lease_has_passed_before_its_turn(self) -> None:
        self.group("first")
        self.group("second")
        slow, other = self.feed(), self.feed()
        groups = iter(slow)
        first = next(groups)
        self.assertEqual(first.name, "first")
        slow._lease_secs = 1
        slow.renew(first, *slow._next)
        # The consumer is busy with the first for longer than the leases of both.
        taken: list[Group] = []
        while len(taken) < 2:
            taken += other.take()
        self.group("third")
        with self.assertLogs("turnout.feed", logging.WARNING) as logs:
            self.assertEqual(next(groups).name, "third")
        self.assertIn("it is skipped here", logs.output[0])

    def test_all_groups_that_wait_for_their_turn_are_renewed_together(self) -> None:
        class Renewing(Feed):
            renewed: list[list[str]] = []

            def renew(self, *groups: Group, lease_secs: float | None = None) -> None:
                self.renewed.append([group.name for group in groups])
                super().renew(*groups, lease_secs=600)

        for name in "abc":
            self.group(name)
        with Renewing(self.router.url) as feed:
            # A quarter of it has always passed.
            feed._lease_secs = 0
            groups = iter(feed)
            self.assertEqual([next(groups).name for _ in "abc"], ["a", "b", "c"])
            self.assertEqual(feed.renewed, [["b", "c"], ["c"]])

    def test_an_ack_waits_for_a_router_that_restarts(self) -> None:
        self.group("g")
        feed = self.feed()
        group = next(iter(feed))
        with self.assertLogs("turnout.feed", logging.WARNING) as logs:
            self.stop_until_a_warning(lambda: None)
            feed.ack(group)
        self.assertIn("is not there", logs.output[0])
        self.assertEqual((feed.stats()["acked"], feed.take(wait_secs=0)), (1, []))

    def test_a_consumer_that_waits_gets_groups_of_the_router_after_a_restart(self) -> None:
        feed, got = self.feed(wait_secs=600), list[Group]()
        waiter = threading.Thread(target=lambda: got.append(next(iter(feed))))
        waiter.start()
        stats = self.feed()
        until(lambda: bool(stats.stats()["waitingConsumers"] == 1))
        with self.assertLogs("turnout.feed", logging.WARNING):
            self.stop_until_a_warning(lambda: self.group("after"))
            waiter.join(PATIENCE_SECS)
        self.assertEqual([group.name for group in got], ["after"])
        feed.close()

    def test_closing_ends_the_loop_of_another_thread_and_loses_no_group(self) -> None:
        feed, stats, got = self.feed(wait_secs=600), self.feed(), list[list[Group]]()
        waiter = threading.Thread(target=lambda: got.append(list(feed)))
        waiter.start()
        until(lambda: bool(stats.stats()["waitingConsumers"] == 1))
        feed.close()
        waiter.join(PATIENCE_SECS)
        self.assertEqual(got, [[]])
        until(lambda: bool(stats.stats()["waitingConsumers"] == 0))
        self.group("after")
        [group] = stats.take()
        self.assertEqual((group.name, group.deliveries), ("after", 1))
        with self.assertRaisesRegex(RuntimeError, "the feed is closed"):
            feed.take()

    def test_what_comes_while_it_is_closed_is_given_back(self) -> None:
        class Closing(Feed):
            def _received(self, call: Call[bytes]) -> list[Group]:
                groups = super()._received(call)
                self.close()
                return groups

        self.group("g")
        with self.assertRaisesRegex(RuntimeError, "the feed is closed"):
            Closing(self.router.url).take()
        self.assertEqual(list(Closing(self.router.url)), [])
        [group] = self.feed().take(wait_secs=0)
        self.assertEqual(group.deliveries, 3)

    def test_closing_ends_a_loop_that_waits_for_a_router(self) -> None:
        feed = Feed("http://127.0.0.1:9")

        class Close(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                feed.close()

        closing = Close()
        log = logging.getLogger("turnout.feed")
        log.addHandler(closing)
        self.addCleanup(log.removeHandler, closing)
        with unittest.mock.patch("turnout.feed._FIRST_PAUSE_SECS", 10 * PATIENCE_SECS):
            self.assertEqual(list(feed), [])

    def stop_until_a_warning(self, after: Callable[[], None]) -> None:
        """Stops the router. The first warning of a feed starts it again at the same address, with the same data."""
        port = urlsplit(self.router.url).port or 0
        stopped = threading.Event()

        def restart(restarting: logging.Handler) -> None:
            log.removeHandler(restarting)
            # A feed of another thread misses it before it has ended.
            assert stopped.wait(PATIENCE_SECS)
            self.router = self.start(port)
            after()

        class Restart(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                restart(self)

        log = logging.getLogger("turnout.feed")
        log.addHandler(Restart())
        self.router.stop()
        stopped.set()

    def test_without_a_router_calls_end(self) -> None:
        self.router.stop()
        # The second of two tries comes too late to be followed by a third.
        with unittest.mock.patch("turnout.feed.time") as clock:
            clock.monotonic.side_effect = [0, 600, 601]
            with self.assertLogs("turnout.feed"), self.assertRaises(httpx.TransportError):
                self.feed(retry_secs=600).take()
        with self.assertRaises(httpx.UnsupportedProtocol):
            Feed("ftp://127.0.0.1").take()

    def test_a_consumer_that_crashes_before_its_ack_gets_the_group_again_and_trains_once(self) -> None:
        self.group("g")
        program = f"""
            import os
            from turnout.feed import Feed
            feed = Feed({self.router.url!r}, wait_secs=20)
            for group in feed:
                # The checkpoint has the step and the id.
                print("trained", group.id, flush=True)
                feed.renew(group, lease_secs=1)
                os._exit(1)
        """
        crashed = script(self, program)
        self.assertEqual(crashed.process.wait(60), 1)
        assert crashed.process.stdout is not None
        trained = {int(crashed.process.stdout.read().split()[-1])}
        again = self.feed()
        group = next(iter(again))
        self.assertEqual((group.id in trained, group.deliveries), (True, 2))
        again.ack(group)
        self.assertEqual(again.stats()["ready"] + again.stats()["leased"], 0)

    def test_the_trainer_of_the_guide_trains_once_on_each_group(self) -> None:
        program = REPOSITORY / "examples/feed/trainer.py"
        guide = (REPOSITORY / "docs/guides/feed.md").read_text()
        self.assertIn(program.read_text(), guide)
        self.assertLessEqual(len(program.read_text().splitlines()), 40)
        for name in "gh":
            self.group(name)
        words = [sys.executable, str(program), self.router.url, "2", f"{self.data}/checkpoint.json"]
        run = subprocess.run(words, check=True, capture_output=True, text=True, timeout=120)
        steps = [line.split(":")[0] for line in run.stdout.splitlines()]
        self.assertEqual(steps, ["step 1", "step 2"])
        self.assertNotIn("nan", run.stdout)
        self.assertEqual(self.feed().stats()["acked"], 2)

    def test_a_step_of_the_grpo_example_that_outlasts_its_leases_has_each_group_once(self) -> None:
        source = (REPOSITORY / "examples/grpo/collect.py").read_text()
        example: dict[str, Any] = {}
        exec(compile(source, "collect.py", "exec"), example)
        test = self

        class Slow(Feed):
            """Its lease has passed before it renews it, and after it has renewed it too."""

            calls = 0
            held: tuple[Group, ...] = ()

            def renew(self, *groups: Group, lease_secs: float | None = None) -> None:
                self.calls += len(groups)
                self.held = groups
                if self.calls == 1 and groups:
                    self.let_pass()
                super().renew(*groups, lease_secs=lease_secs)

            def take(self, max_groups: int | None = None, wait_secs: float | None = None) -> list[Group]:
                if self.calls == 2:
                    self.let_pass()
                    self.calls += 1
                    test.group("second")
                return super().take(max_groups, wait_secs)

            def let_pass(self) -> None:
                super().renew(*self.held, lease_secs=1)
                until(lambda: bool(self.stats()["ready"] == 1))

        self.group("first")
        with Slow(self.router.url, wait_secs=20) as feed:
            groups = example["collect"](feed, 2)
            self.assertEqual(sorted(group.name for group in groups), ["first", "second"])
            self.assertGreaterEqual(max(group.deliveries for group in groups), 3)
            feed.ack(*groups)
            self.assertEqual(feed.stats()["acked"], 2)

    def test_leases_of_any_number_are_given_back_and_acked(self) -> None:
        self.group("g")
        feed = self.feed()
        [group] = feed.take()
        # More than the router takes in one call; the last is that of the group.
        unknown = [f"{i}-1" for i in range(10_000)]
        feed._held = dict.fromkeys([*unknown, group.lease])
        feed.close()
        other = self.feed()
        [again] = other.take()
        self.assertEqual(again.deliveries, 2)
        with self.assertRaises(LeaseLost) as lost:
            other.ack(*(replace(again, lease=lease) for lease in unknown), again)
        self.assertEqual((lost.exception.leases, other.stats()["acked"]), (unknown, 1))

    def test_a_key_that_cannot_be_sent_is_not_tried_again(self) -> None:
        with self.assertNoLogs("turnout.feed"), self.assertRaises(httpx.LocalProtocolError):
            self.feed(api_key="key\n").take()

    def test_refusals_are_errors(self) -> None:
        with self.assertRaises(ControlError) as refused:
            self.feed(max_groups=5_000).take()
        self.assertEqual(refused.exception.status, 400)
        with self.assertRaisesRegex(ControlError, "max_groups: 0: must be at least 1"):
            self.feed().take(0)
        self.group("g")
        [group] = self.feed().take()
        with self.assertRaises(ControlError) as refused:
            self.router.reward("g-a", reward=2)
        self.assertEqual((refused.exception.status, refused.exception.code), (409, "group_taken"))
        self.assertEqual(len(group.rows), 2)

    def test_a_409_that_is_not_the_routers_is_an_error(self) -> None:
        self.group("g")
        [group] = self.feed().take()
        with Feed(Stub(self, 409, b"conflict").url) as feed, self.assertRaises(ControlError) as refused:
            feed.ack(group)
        self.assertEqual(refused.exception.status, 409)

    def test_torch_is_not_needed(self) -> None:
        self.group("g")
        [group] = self.feed().take()
        if importlib.util.find_spec("torch") is None:
            with self.assertRaisesRegex(ModuleNotFoundError, "torch"):
                group.to_torch()
            return
        row = group.to_torch()[0]
        types = [str(row[name].dtype) for name in ("tokens", "loss_mask", "logprobs")]
        self.assertEqual(types, ["torch.int32", "torch.uint8", "torch.float32"])
        self.assertEqual(row["tokens"].tolist(), group.rows[0].tokens.tolist())


class RewardTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.router = Router(worker_urls=["http://127.0.0.1:9"], port=0, prometheus_port=0).start()
        self.addCleanup(self.router.stop)

    async def test_a_reward_without_the_feed_is_refused(self) -> None:
        async with AsyncClient(self.router.url) as client:
            with self.assertRaises(ControlError):
                await client.reward("s", reward=1)
            with self.assertRaisesRegex(ControlError, "--plugin feed"):
                await client.finish_session("s", rewards={"format": 1})


class ImportTest(unittest.TestCase):
    def test_without_numpy_the_error_says_what_to_install(self) -> None:
        program = "import sys; sys.modules['numpy'] = None; import turnout; import turnout.feed"
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("pip install 'turnout[feed]'", run.stderr)

    def test_without_pyarrow_it_reads_ndjson(self) -> None:
        program = (
            "import sys, importlib.util as u; real = u.find_spec\n"
            "u.find_spec = lambda name, *more: None if name == 'pyarrow' else real(name, *more)\n"
            "from turnout.feed import Feed; print(Feed('http://127.0.0.1:9').format, 'torch' in sys.modules, 'pyarrow' in sys.modules)"
        )
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        self.assertEqual(run.stdout.split(), ["ndjson", "False", "False"])
