"""turnout in the place of agent-lightning's LLM proxy.

The agent, its runner and the store stay as they are. `Rollouts.enqueue` registers the rollouts of a task in the LightningStore: each
gets an LLM resource whose endpoint is a chat session of the router, and the router is told that these sessions are a group.
`EndSession` is a hook of the runner that ends the session with the reward of the rollout. `Rollouts.write` takes a finished group
of the feed and writes its turns to the store as spans with the exact token ids and log-probabilities, and the reward after them, so
that the algorithm finds them with `query_spans` and `LlmProxyTraceToTriplet()`, or `TracerTraceToTriplet(llm_call_match=SPAN)`.

    store = agl.InMemoryLightningStore()
    rollouts = Rollouts(store, "http://127.0.0.1:30000", "my-model")
    await rollouts.enqueue("What is 6 times 7?", size=4)
    ...                                   # runners: LitAgentRunner, with hooks=[EndSession("http://127.0.0.1:30000")]
    with Feed("http://127.0.0.1:30000") as feed:
        for group in await asyncio.to_thread(feed.take):
            await rollouts.write(group)
            feed.ack(group)

The router runs with `--tokenizer-path`, `--plugin chat-sessions` and `--plugin 'feed:{"deadlineSecs":1800}'`: the deadline is for
rollouts that end before their first request. Attempts of one rollout share its session; give rollouts one attempt (the default).

Checked with agentlightning 0.3.0 (InMemoryLightningStore, LitAgentRunner with OtelTracer, both adapters), openai 2.54.0 and
simulated engines: `test_adapters.py`. Not checked: its VERL algorithm, which needs GPUs, and stores on other machines.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import uuid
from typing import Any

import agentlightning as agl
import httpx
from agentlightning.semconv import AGL_ANNOTATION

from turnout import AsyncClient, ControlError
from turnout.feed import Group, Row

SPAN = "litellm_request"
SESSION = "turnout_session"


class EndSession(agl.Hook):
    """Ends the session of a rollout when its agent has ended."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._url, self._api_key = url, api_key

    async def on_rollout_end(self, *, agent: Any, runner: Any, rollout: agl.Rollout, spans: Any) -> None:
        # `spans` is without the reward that the agent returned; the store has it.
        reward = agl.find_final_reward(await runner.get_store().query_spans(rollout.rollout_id))
        async with AsyncClient(self._url, self._api_key) as router:
            try:
                # An agent that failed has no reward: the group is not to wait for it.
                await router.finish_session((rollout.metadata or {})[SESSION], reward=reward)
            except ControlError as refused:
                # It made no request, or a consumer has its group.
                if refused.code not in ("session_not_found", "group_taken"):
                    raise


class Rollouts:
    """Rollouts of a store whose agents call the router at `url`."""

    def __init__(self, store: agl.LightningStore, url: str, model: str, api_key: str | None = None) -> None:
        self._store, self._url, self._model, self._api_key = store, url, model, api_key
        self._ids: dict[str, str] = {}

    async def enqueue(self, task: Any, size: int, **resources: Any) -> list[agl.Rollout]:
        """Registers `size` rollouts of a task as one group. `resources` are other resources of the agent."""
        key = {} if self._api_key is None else {"authorization": f"Bearer {self._api_key}"}
        async with httpx.AsyncClient(base_url=self._url, headers=key, trust_env=False) as http:
            begun = [(await http.post("/sessions")).raise_for_status().json()["session_id"] for _ in range(size)]
            declared = {"group": uuid.uuid4().hex, "size": size, "sessions": begun}
            (await http.post("/groups", json=declared)).raise_for_status()
        return [await self._enqueue(task, session, resources) for session in begun]

    async def write(self, group: Group) -> list[str]:
        """Writes a group's turns and rewards to the store. The same group again changes nothing. Returns the rollout ids."""
        return [await self._write(group, row) for row in group.rows]

    async def _enqueue(self, task: Any, session: str, resources: dict[str, Any]) -> agl.Rollout:
        llm = agl.LLM(endpoint=f"{self._url}/sessions/{session}/v1", model=self._model, api_key=self._api_key or "none")
        named = await self._store.add_resources({**resources, "llm": llm})
        rollout = await self._store.enqueue_rollout(
            task, mode="train", resources_id=named.resources_id, metadata={SESSION: session}
        )
        self._ids[session] = rollout.rollout_id
        return rollout

    async def _rollout_of(self, session: str) -> str:
        if session not in self._ids:
            # Of a process before this one.
            for rollout in await self._store.query_rollouts():
                self._ids[(rollout.metadata or {}).get(SESSION, "")] = rollout.rollout_id
        return self._ids[session]

    async def _write(self, group: Group, row: Row) -> str:
        rollout = await self._rollout_of(row.session)
        attempt = await self._store.get_latest_attempt(rollout)
        assert attempt is not None, f"rollout {rollout} has no attempt, and its session has turns"
        known = {span.span_id for span in await self._store.query_spans(rollout)}

        async def add(key: str, name: str, attributes: dict[str, Any]) -> None:
            # The same in every delivery of the group.
            span_id = hashlib.sha256(f"{group.id} {row.trajectory} {key}".encode()).hexdigest()[:16]
            if span_id in known:
                return
            sequence = await self._store.get_next_span_sequence_id(rollout, attempt.attempt_id)
            now = time.time()
            span = agl.Span.from_attributes(
                attributes=attributes,
                rollout_id=rollout,
                attempt_id=attempt.attempt_id,
                sequence_id=sequence,
                name=name,
                trace_id=hashlib.sha256(rollout.encode()).hexdigest()[:32],
                span_id=span_id,
                start_time=now,
                end_time=now,
            )
            await self._store.add_span(span)

        for turn in row.turns:
            await add(turn["id"], SPAN, {**_turn(row, turn), "turnout.group": group.name, "turnout.lag": row.lag})
        if row.reward is not None:
            parts = [("primary", row.reward), *row.rewards.items()]
            named = {f"agentlightning.reward.{i}.name": name for i, (name, _) in enumerate(parts)}
            values = {f"agentlightning.reward.{i}.value": float(value) for i, (_, value) in enumerate(parts)}
            await add("reward", AGL_ANNOTATION, {**named, **values})
        return rollout


def _turn(row: Row, turn: dict[str, Any]) -> dict[str, Any]:
    """A turn as attributes of a span: what the model had read, and what it sampled."""
    sampled = [i for i in range(turn["from"], turn["to"]) if row.loss_mask[i] == 1]
    first, last = (sampled[0], sampled[-1] + 1) if sampled else (turn["to"], turn["to"])
    logprobs = [None if math.isnan(each) else each for each in row.logprobs[first:last].tolist()]
    return {
        "prompt_token_ids": row.tokens[:first].tolist(),
        "response_token_ids": row.tokens[first:last].tolist(),
        "logprobs.content": json.dumps([{"logprob": each} for each in logprobs]),
        "gen_ai.response.id": turn["id"],
        "gen_ai.response.model": row.model,
        "gen_ai.response.finish_reason": turn["finish_reason"] or "",
    }
