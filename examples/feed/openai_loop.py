"""Rollouts with the openai package: python openai_loop.py ROUTER MODEL [GROUPS [SIZE]].

Each prompt is a group of SIZE sessions of two turns. The requests carry the names of session and group as headers; the
reward ends the session, and the router gives finished groups to the trainer (`trainer.py`). The router runs with
`--tokenizer-path`, `--capture-chat` and `--plugin feed`; with `feed:{"maxPendingGroups":32,"whenFull":"hold"}` new groups wait
while the trainer is behind.

Checked with openai 2.54.0 and simulated engines: `test_adapters.py`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid

from openai import APIStatusError, AsyncOpenAI

from turnout import AsyncClient

QUESTIONS = ["What is 6 times 7?", "What is 9 times 8?", "What is 12 times 12?", "What is 15 times 4?"]
ANSWERS = ["42", "72", "144", "60"]
TURNS = ["{question}", "Are you sure? Say only the number."]


def grade(answer: str, right: str) -> dict[str, float]:
    """The parts of the reward."""
    return {"right": float(right in answer), "short": 1 / (1 + len(answer))}


async def rollout(openai: AsyncOpenAI, router: AsyncClient, model: str, group: str, member: int, size: int) -> str:
    """One session. Returns why it is over."""
    task = int(group.rpartition("-")[2]) % len(QUESTIONS)
    session = f"{group}-{member}"
    headers = {"x-session-id": session, "x-turnout-group": group, "x-turnout-group-size": str(size)}
    messages: list[dict[str, str]] = []
    try:
        for turn in TURNS:
            messages.append({"role": "user", "content": turn.format(question=QUESTIONS[task])})
            response = await openai.chat.completions.create(
                model=model,
                messages=messages,  # type: ignore[arg-type]
                max_tokens=32,
                extra_headers=headers,
            )
            messages.append({"role": "assistant", "content": response.choices[0].message.content or ""})
    except APIStatusError as refused:
        # The group has enough members, or its deadline has passed.
        if refused.response.headers.get("x-turnout-error") == "session_cancelled":
            return "cancelled"
        raise
    parts = grade(messages[-1]["content"], ANSWERS[task])
    await router.finish_session(session, reward=sum(parts.values()), rewards=parts)
    return "finished"


async def main(url: str, model: str, groups: int = 4, size: int = 4) -> None:
    key = os.environ.get("TURNOUT_KEY")
    # Sessions need names that no other run has.
    run = uuid.uuid4().hex[:8]
    # A request may wait long, because it is held, or its engine is busy.
    async with (
        AsyncOpenAI(base_url=f"{url}/v1", api_key=key or "none", timeout=3_600) as openai,
        AsyncClient(url, api_key=key) as router,
    ):
        members = [(f"{run}-{group}", member) for group in range(groups) for member in range(size)]
        ends = await asyncio.gather(*(rollout(openai, router, model, group, member, size) for group, member in members))
    print(f"{len(ends)} sessions: {ends.count('finished')} finished, {ends.count('cancelled')} cancelled")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5])))
