"""The examples against a router, simulated engines and the real packages. `test.py` installs them and runs this."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np

from turnout import Router
from turnout._command import command
from turnout.feed import Feed, Group

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "python"), str(HERE)]

from tests.world import engines  # noqa: E402

# slime is no package of a registry.
SLIME = os.environ.get("SLIME", "")


class Scene(unittest.TestCase):
    engine = "vllm"
    recorder = "chat-sessions"
    options: dict[str, Any] = {}

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="turnout-feed-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        subprocess.run([*command(), "sim", "--write-tokenizer", folder.name], check=True, capture_output=True)
        constants = ("variedSampling=true", "meanOutputTokens=12", "weightVersion=7", "experts=8", "layers=4")
        self.router = Router(
            worker_urls=engines(self, 1, self.engine, constants),
            port=0,
            prometheus_port=0,
            tokenizer_path=folder.name,
            data_dir=str(self.folder / "data"),
            capture_chat=self.recorder == "chat-sessions",
            plugin=[self.recorder, f"feed:{json.dumps(self.options)}"],
        ).start()
        self.addCleanup(self.router.stop)
        self.router.wait_ready()

    def run_example(self, *words: str) -> str:
        run = subprocess.run([sys.executable, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def take(self) -> Group:
        """A group, which is given back at once."""
        with Feed(self.router.url, wait_secs=30) as feed:
            [group] = feed.take()
        return group

    def stats(self) -> dict[str, Any]:
        with Feed(self.router.url) as feed:
            return feed.stats()


class OpenAiTest(Scene):
    def test_a_trainer_takes_what_the_rollouts_made(self) -> None:
        rollouts = str(HERE / "openai_loop.py"), self.router.url, "sim"
        self.assertIn("12 sessions: 12 finished, 0 cancelled", self.run_example(*rollouts, "3", "4"))
        steps = self.run_example(str(HERE / "trainer.py"), self.router.url, "3").splitlines()
        self.assertEqual([step.split(":")[0] for step in steps], ["step 1", "step 2", "step 3"])
        self.assertTrue(all("4 trajectories, loss " in step and "nan" not in step for step in steps), steps)
        self.assertEqual(self.stats()["acked"], 3)
        # The trainer ended between its checkpoint and the ack.
        self.run_example(*rollouts, "1", "2")
        group = self.take()
        self.assertEqual([sorted(row.rewards) for row in group.rows], [["right", "short"]] * 2)
        checkpoint = self.folder / "checkpoint.json"
        state = json.loads(checkpoint.read_text())
        checkpoint.write_text(json.dumps({"step": 4, "trained": [*state["trained"], group.id]}))
        self.assertEqual(self.run_example(str(HERE / "trainer.py"), self.router.url, "4"), "")
        self.assertEqual(self.stats()["acked"], 4)


class LightningTest(Scene):
    def test_rollouts_of_a_store_get_their_turns_with_exact_tokens(self) -> None:
        asyncio.run(self.rollouts())

    async def rollouts(self) -> None:
        import agentlightning as agl
        from openai import OpenAI

        from agent_lightning import SPAN, EndSession, Rollouts

        def agent(task: str, llm: agl.LLM, turns: int) -> float:
            client, messages = OpenAI(base_url=llm.endpoint, api_key=llm.api_key), [{"role": "user", "content": task}]
            for _ in range(turns):
                response = client.chat.completions.create(model=llm.model, messages=messages)  # type: ignore[arg-type]
                messages.append({"role": "assistant", "content": response.choices[0].message.content or ""})
                messages.append({"role": "user", "content": "Go on."})
            if task == "fail":
                raise RuntimeError("the agent failed")
            return float(len(messages[1]["content"]))

        @agl.rollout
        def two_turns(task: str, llm: agl.LLM) -> float:
            return agent(task, llm, 2)

        store = agl.InMemoryLightningStore()
        rollouts = Rollouts(store, self.router.url, "sim")
        enqueued = [await rollouts.enqueue("What is of ten?", 2), await rollouts.enqueue("fail", 2)]
        runner = agl.LitAgentRunner[str](tracer=agl.OtelTracer(), max_rollouts=4, poll_interval=0.1)
        with runner.run_context(agent=two_turns, store=store, hooks=[EndSession(self.router.url)]):
            await runner.iter()

        with Feed(self.router.url, wait_secs=30) as feed:
            for expected in enqueued:
                [group] = await asyncio.to_thread(feed.take, 1)
                written = await rollouts.write(group)
                self.assertEqual(written, [rollout.rollout_id for rollout in expected])
                # Another process, to which the group came again.
                self.assertEqual(await Rollouts(store, self.router.url, "sim").write(group), written)
                for row, rollout in zip(group.rows, written, strict=True):
                    spans = await store.query_spans(rollout)
                    self.assertEqual([span.name for span in spans].count(SPAN), 2)
                    triplets = agl.LlmProxyTraceToTriplet().adapt(spans)
                    traced = agl.TracerTraceToTriplet(llm_call_match=SPAN).adapt(spans)
                    for of_proxy, of_tracer in zip(triplets, traced, strict=True):
                        for part in ("prompt", "response"):
                            ids = [getattr(each, part)["token_ids"] for each in (of_proxy, of_tracer)]
                            self.assertEqual(ids[0], ids[1])
                        self.assertEqual(of_proxy.reward, of_tracer.reward)
                    last = triplets[-1]
                    self.assertEqual(last.prompt["token_ids"] + last.response["token_ids"], row.tokens.tolist())
                    sampled = [token for triplet in triplets for token in triplet.response["token_ids"]]
                    self.assertEqual(sampled, row.tokens[row.loss_mask == 1].tolist())
                    logprobs = [each["logprob"] for each in traced[-1].response["logprobs"]]
                    np.testing.assert_array_equal(np.float32(logprobs), row.logprobs[-len(logprobs) :])
                    status = (await store.get_rollout_by_id(rollout)).status  # type: ignore[union-attr]
                    failed = expected is enqueued[1]
                    self.assertEqual((status, row.reward is None), ("failed", True) if failed else ("succeeded", False))
                    self.assertEqual((last.reward, agl.find_final_reward(spans)), (row.reward, row.reward))
                feed.ack(group)


@unittest.skipUnless(SLIME, "SLIME names no checkout of slime")
class SlimeTest(Scene):
    engine = "sglang"
    recorder = "radix-tree"
    options = {"groupSize": 2}

    def group(self, name: str) -> None:
        """Two members; the second has two turns and routed experts."""
        for reward, member in enumerate("ab"):
            text = "What is of ten?"
            for _ in range(reward + 1):
                parameters = {"sampling_params": {"max_new_tokens": 8}, "return_routed_experts": True}
                answer = httpx.post(
                    f"{self.router.url}/generate",
                    json={"text": text, "return_logprob": True, **parameters},
                    headers={"x-session-id": f"{name}-{member}", "x-turnout-group": name},
                    trust_env=False,
                )
                text += answer.json()["text"] + " of ten"
            self.router.finish_session(f"{name}-{member}", reward=reward)

    def test_slime_trains_on_groups_of_the_feed(self) -> None:
        sys.path.insert(0, SLIME)
        from slime.rollout.base_types import RolloutFnTrainOutput, call_rollout_fn
        from slime.utils.misc import load_function
        from slime.utils.types import Sample

        args = SimpleNamespace(
            turnout_url=self.router.url,
            save=str(self.folder / "save"),
            load=str(self.folder / "save"),
            rollout_batch_size=2,
            n_samples_per_prompt=2,
            reward_key=None,
            advantage_estimator="grpo",
            rewards_normalization=True,
            grpo_std_normalization=True,
        )
        generate = load_function("slime_rollout.generate_rollout")
        make_source = load_function("slime_rollout.FeedDataSource")
        self.group("g1")
        self.group("g2")
        rows = {row.session: row for row in self.take_all()}
        source = make_source(args)
        output = call_rollout_fn(generate, args, 0, source, evaluation=False)
        self.assertIsInstance(output, RolloutFnTrainOutput)
        functions = of_slime()
        functions["validate_rollout_id_annotated"](output.samples)
        self.assertEqual([[type(each) for each in group] for group in output.samples], [[Sample] * 2] * 2)
        samples = [sample for group in output.samples for sample in group]
        for sample in samples:
            row = rows[sample.session_id]
            sample._validate_response_metadata_lengths()
            self.assertEqual(sample.tokens, row.tokens.tolist())
            self.assertEqual(sample.effective_response_length, row.loss_mask.sum())
            self.assertEqual(sample.tokens[-sample.response_length :][0], row.tokens[row.loss_mask == 1][0])
            self.assertEqual(sample.weight_versions, ["7"])
            self.assertEqual(Sample.from_dict(sample.to_dict()), sample)

        data = converted(args, samples)
        self.assertEqual(data["rollout_ids"], [0, 1, 2, 3])
        self.assertEqual([len(each) for each in data["rollout_log_probs"]], data["response_lengths"])
        of_rows = [rows[sample.session_id] for sample in samples]
        self.assertEqual([sum(each) for each in data["loss_masks"]], [row.loss_mask.sum() for row in of_rows])
        self.assertEqual(data["truncated"], [row.finish_reason == "length" for row in of_rows])
        shapes = [tuple(each.shape) for each in data["rollout_routed_experts"]]
        self.assertEqual([shape[0] for shape in shapes], [len(sample.tokens) - 1 for sample in samples])
        of_feed = converted(args, samples, load_function("slime_rollout.group_rewards"))
        np.testing.assert_allclose(of_feed["rewards"], data["rewards"], rtol=1e-5)
        self.assertEqual(of_feed["raw_reward"], [0, 1, 0, 1])

        # The groups of the next step are not those of this checkpoint.
        self.group("g3")
        args.rollout_batch_size = 1
        call_rollout_fn(generate, args, 1, source, evaluation=False)
        source.save(0)
        stats = self.stats()
        self.assertEqual((stats["acked"], stats["leased"]), (2, 1))
        # slime ends: g3 comes again, and is in the checkpoint whose ack was lost.
        source._feed.close()
        state = self.folder / "save/rollout/turnout_feed_0.json"
        saved = json.loads(state.read_text())
        self.assertEqual((saved["samples"], len(saved["saved"])), (6, 2))
        state.write_text(json.dumps({**saved, "saved": [*saved["saved"], self.take().id]}))
        self.group("g4")
        again = make_source(args)
        again.load(0)
        output = call_rollout_fn(generate, args, 1, again, evaluation=False)
        self.assertEqual([sample.metadata["group"] for sample in output.samples[0]], ["g4", "g4"])
        self.assertEqual([sample.index for sample in output.samples[0]], [6, 7])
        self.assertEqual(self.stats()["acked"], 3)
        again._feed.close()

    def take_all(self) -> list[Any]:
        with Feed(self.router.url, wait_secs=30) as feed:
            groups = feed.take()
            while len(groups) < 2:
                groups += feed.take()
        return [row for group in groups for row in group.rows]


def of_slime() -> dict[str, Any]:
    """Functions of slime's `ray/rollout.py`, which cannot be imported without SGLang: they run from its source."""
    import torch
    from slime.utils.data import get_source
    from slime.utils.types import Sample

    names = ("_post_process_rewards", "_convert_samples_to_train_data", "_validate_rollout_id_annotated")
    path = Path(SLIME) / "slime/ray/rollout.py"
    nodes = ast.walk(ast.parse(path.read_text()))
    found = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name in names]
    known: dict[str, Any] = {"torch": torch, "Sample": Sample, "Any": Any, "get_source": get_source}
    exec(compile(ast.Module(body=list(found), type_ignores=[]), str(path), "exec"), known)
    if (Path(SLIME) / "slime/observability/rollout_data_utils.py").exists():
        # After 0.3.1.
        from slime.observability import rollout_data_utils

        return {**known, "validate_rollout_id_annotated": rollout_data_utils.validate_rollout_id_annotated}
    return {**known, "validate_rollout_id_annotated": known["_validate_rollout_id_annotated"]}


def converted(args: Any, samples: list[Any], post_process: Any = None) -> dict[str, Any]:
    """slime's own conversion of samples to training data."""
    functions = of_slime()
    manager = SimpleNamespace(
        args=args, custom_reward_post_process_func=post_process, custom_convert_samples_to_train_data_func=None
    )
    manager._post_process_rewards = lambda of: functions["_post_process_rewards"](manager, of)
    result: dict[str, Any] = functions["_convert_samples_to_train_data"](manager, samples)
    return result
