"""The agent: python rollouts.py ROUTER GROUPS [--help]. Each problem is a group of sessions, played through the openai package.

It knows one URL and no engine, trainer, token or weights. One line of JSON for each session on stdout. A failed request ends it with
status 1, unless --retry repeats requests, as the agents of the other run do. With --lead it begins so many groups and one more for each
line on stdin; without it the router holds new groups back while the trainer is behind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import uuid
from typing import Any

from openai import APIError, AsyncOpenAI

from task import MAX_TOKENS, MAX_TURNS, Problem, make_problem, reward, tool_message
from turnout import AsyncClient

AT_ONCE = 4  # groups


class Agent:
    def __init__(self, openai: AsyncOpenAI, router: AsyncClient, options: argparse.Namespace) -> None:
        self._openai, self._router, self._options = openai, router, options

    async def session(self, problem: Problem, group: str, member: int) -> None:
        name = f"{group}-{member}"
        headers = {"x-session-id": name, "x-turnout-group": group, "x-turnout-group-size": str(self._options.size)}
        messages, turns, got = problem.messages(), [], 0.0
        for _ in range(MAX_TURNS):
            turn = await self._turn(messages, {} if self._options.plain else headers)
            turns.append(turn)
            messages.append({"role": "assistant", "content": turn["text"]})
            result = tool_message(turn["text"])
            if result is None:
                got = reward(problem, turn["text"])
                break
            messages.append(result)
        if not self._options.plain:
            await self._router.finish_session(name, reward=got)
        print(
            json.dumps({"session": name, "group": group, "reward": got, "messages": messages, "turns": turns}),
            flush=True,
        )

    async def _turn(self, messages: list[dict[str, str]], headers: dict[str, str]) -> dict[str, Any]:
        retries = 0
        while True:
            try:
                turn = await self._request(messages, headers)
                if turn["finish"] != "abort":
                    return {**turn, "retries": retries}
                problem = "aborted, as by an engine that is paused for new weights"
            except APIError as error:
                problem = str(error)
            if not self._options.retry:
                raise RuntimeError(f"a request failed: {problem}")
            print(f"a request failed and is sent again: {problem}", file=sys.stderr)
            retries += 1
            await asyncio.sleep(0.5)

    async def _request(self, messages: list[dict[str, str]], headers: dict[str, str]) -> dict[str, Any]:
        """A turn: its text, why it ended, and its number of tokens. With --plain also what only the report reads: ids and logprobs."""
        measured: dict[str, Any] = (
            {"extra_body": {"return_token_ids": True}, "logprobs": True} if self._options.plain else {}
        )
        if self._options.experts:
            measured = {"extra_body": {"return_routed_experts": True}}
        request: dict[str, Any] = {"model": "tiny", "messages": messages, "max_tokens": MAX_TOKENS, "temperature": 1}
        turn: dict[str, Any] = {"text": "", "ids": [], "logprobs": []}
        # The stream of a chat on SGLang cannot continue on another engine, a whole response can be asked for again.
        if not self._options.stream:
            response = await self._openai.chat.completions.create(**request, **measured, extra_headers=headers)
            choice = response.choices[0]
            turn["text"] = choice.message.content or ""
            parts, usage = [choice], response.usage
        else:
            parts, usage = [], None
            stream = await self._openai.chat.completions.create(
                **request, **measured, extra_headers=headers, stream=True, stream_options={"include_usage": True}
            )
            async for chunk in stream:
                usage = chunk.usage or usage
                parts += chunk.choices
            turn["text"] = "".join(part.delta.content or "" for part in parts)
        for part in parts:
            turn["finish"] = part.finish_reason or turn.get("finish")
            extra = part.model_extra or {}
            turn["ids"] += extra.get("token_ids") or extra.get("response_token_ids") or []
            turn["logprobs"] += [each.logprob for each in (part.logprobs.content if part.logprobs else None) or []]
        assert usage is not None
        details = usage.prompt_tokens_details
        cached = (details.cached_tokens if details else None) or 0
        return {**turn, "tokens": usage.completion_tokens, "prompt": usage.prompt_tokens, "cached": cached}


async def main(options: argparse.Namespace) -> None:
    rng = random.Random(options.seed)
    run = uuid.uuid4().hex[:8]
    at_once = asyncio.Semaphore(AT_ONCE)
    lead = asyncio.Semaphore(options.lead or options.groups)

    async def read_releases() -> None:
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while await lines.readline():
            lead.release()

    async with (
        AsyncOpenAI(base_url=f"{options.url}/v1", api_key="none", timeout=3_600, max_retries=0) as openai,
        AsyncClient(options.url) as router,
    ):
        agent = Agent(openai, router, options)

        async def group(number: int, problem: Problem) -> None:
            async with at_once:
                await lead.acquire()
                await asyncio.gather(*(agent.session(problem, f"{run}-{number}", i) for i in range(options.size)))

        releases = asyncio.create_task(read_releases()) if options.lead else None
        await asyncio.gather(*(group(i, make_problem(rng)) for i in range(options.groups)))
        if releases is not None:
            releases.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await releases


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Plays the sessions of the example.")
    parser.add_argument("url", help="of the router")
    parser.add_argument("groups", type=int, help="groups to play")
    parser.add_argument("--size", type=int, default=8, help="sessions of a group (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the problems (%(default)s)")
    parser.add_argument("--stream", action="store_true", help="responses are streams")
    parser.add_argument("--plain", action="store_true", help="text in, text out, without sessions")
    parser.add_argument("--experts", action="store_true", help="have the engine return routed experts, for the trainer")
    parser.add_argument("--retry", action="store_true", help="repeat failed and aborted requests")
    parser.add_argument("--lead", type=int, default=0, help="groups to begin before the first line on stdin")
    asyncio.run(main(parser.parse_args()))
