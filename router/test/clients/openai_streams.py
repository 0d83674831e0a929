"""Streams of the OpenAI SDK, all at once. Prints JSON lines: each stream's first chunk, and its end."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from openai import AsyncOpenAI


def say(step: str, **fields: Any) -> None:
    print(json.dumps({"step": step, **fields}), flush=True)


async def stream(client: AsyncOpenAI, args: Any, index: int) -> None:
    chunks = await client.chat.completions.create(
        model=args.model,
        messages=[{"role": "user", "content": f"story {index}"}],
        max_tokens=args.tokens,
        stream=True,
        extra_headers={"x-multi-turn-session-id": f"trajectory-{index}"},
    )
    models: list[str] = []
    finish_reason = None
    count = 0
    async for chunk in chunks:
        if count == 0:
            say("began")
        count += 1
        if chunk.model not in models:
            models.append(chunk.model)
        for choice in chunk.choices:
            finish_reason = choice.finish_reason or finish_reason
    say("stream", finish_reason=finish_reason, chunks=count, models=models)


async def run(args: Any) -> None:
    # No request may need a retry.
    async with AsyncOpenAI(api_key="fw-key", base_url=f"{args.base_url}/inference/v1", max_retries=args.retries) as client:
        await asyncio.gather(*(stream(client, args, i) for i in range(args.count)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", default="accounts/acct/models/sim")
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--retries", type=int, default=0)
    asyncio.run(run(parser.parse_args()))
