"""A sampling loop of tinker-cookbook: its renderer and rollouts, with the tokenizer that the model's name leads to.

Prints JSON lines, as steps.py does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

import tinker
from tinker_cookbook import renderers
from tinker_cookbook.completers import TinkerMessageCompleter, TinkerTokenCompleter
from tinker_cookbook.rl.data_processing import trajectory_to_data
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, StepResult
from tinker_cookbook.tokenizer_utils import get_tokenizer


def say(step: str, **fields: Any) -> None:
    print(json.dumps({"step": step, **fields}), flush=True)


class Conversation(Env):
    """Asks to go on, turn after turn; the reward is the number of words."""

    def __init__(self, renderer: renderers.Renderer, question: str, turns: int) -> None:
        self.renderer = renderer
        self.messages = [renderers.Message(role="user", content=question)]
        self.turns = turns
        self.words = 0

    async def initial_observation(self) -> Any:
        return self.renderer.build_generation_prompt(self.messages), self.renderer.get_stop_sequences()

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        message, termination = self.renderer.parse_response(action)
        say("parsed", tokens=list(action), is_stop=termination.is_stop_sequence)
        self.words += len(renderers.get_text_content(message).split())
        self.messages += [message, renderers.Message(role="user", content="Go on.")]
        self.turns -= 1
        return StepResult(
            reward=float(self.words),
            episode_done=self.turns == 0,
            next_observation=self.renderer.build_generation_prompt(self.messages),
            next_stop_condition=self.renderer.get_stop_sequences(),
        )


class Conversations(EnvGroupBuilder):
    def __init__(self, renderer: renderers.Renderer, question: str, turns: int, size: int) -> None:
        self.make = lambda: Conversation(renderer, question, turns)
        self.size = size

    async def make_envs(self) -> list[Env]:
        return [self.make() for _ in range(self.size)]


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    service = tinker.ServiceClient(base_url=args.base_url, api_key="tml-dummy")
    client = await service.create_sampling_client(base_model=args.model)
    renderer = renderers.get_renderer("qwen3_instruct", get_tokenizer(args.model))

    completer = TinkerMessageCompleter(client, renderer, max_tokens=64)
    answer = await completer([renderers.Message(role="user", content="Who are you?")])
    say("message", role=answer["role"], content=answer["content"])

    policy = TinkerTokenCompleter(client, max_tokens=64)
    questions = [f"Tell a story about the number {i}." for i in range(4)]
    groups = await asyncio.gather(
        *(do_group_rollout(Conversations(renderer, question, turns=3, size=4), policy) for question in questions)
    )
    for group in groups:
        for trajectory, reward in zip(group.trajectories_G, group.get_total_rewards()):
            for transition in trajectory.transitions:
                action = transition.ac
                say(
                    "turn",
                    prompt=transition.ob.to_ints(),
                    sequences=[
                        {"tokens": action.tokens, "logprobs": action.logprobs, "stop_reason": action.stop_reason}
                    ],
                )
            data = trajectory_to_data(trajectory, reward)
            say("data", datums=len(data), logprobs=sum(len(datum.loss_fn_inputs["logprobs"].data) for datum in data))


if __name__ == "__main__":
    asyncio.run(main())
