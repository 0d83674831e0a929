"""The trainer: python trainer.py ROUTER BASE SNAPSHOTS STEPS [GROUPS [SEED]]. GRPO in plain torch on what the feed delivers.

A step takes GROUPS groups from the feed, updates the weights, writes SNAPSHOTS/step-N and signals the swap; rollouts go on meanwhile.
It talks to no engine and no agent. One line of JSON on stdout for each step, with what `truth.py` measured of its tokens.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from collect import collect
from student import save
from truth import Snapshots, measure
from turnout.feed import Feed

LEARNING_RATE, LAST = 3e-4, 0.1  # falls linearly to a tenth: near the end most groups have nothing left to learn
CLIP = 0.2
MINIBATCHES = 2


@dataclass
class Sample:
    """A trajectory as the loss needs it: N tokens."""

    tokens: np.ndarray  # [N] ids
    mask: np.ndarray  # [N] 1: sampled
    logprobs: np.ndarray  # [N] of the policy that sampled them
    advantage: float


def samples_of(rows: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray, float]]) -> list[Sample]:
    """The trajectories of one group: ids, mask, logprobs and reward of each. Its rewards, normalised, are the advantages."""
    rewards = np.array([reward for *_, reward in rows])
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    return [Sample(*row[:3], float(advantage)) for row, advantage in zip(rows, advantages, strict=True)]


def batch_of(samples: Sequence[Sample]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, mask and logprobs [B, longest], advantages [B, 1]."""

    def padded(each: Sequence[np.ndarray], kind: type) -> torch.Tensor:
        whole = np.zeros((len(each), max(map(len, each))), kind)
        for line, values in zip(whole, each, strict=True):
            line[: len(values)] = values
        return torch.from_numpy(whole)

    advantages = torch.tensor([sample.advantage for sample in samples], dtype=torch.float32)[:, None]
    tokens = padded([sample.tokens for sample in samples], np.int64)
    mask = padded([sample.mask for sample in samples], np.bool_)
    return tokens, mask, padded([sample.logprobs for sample in samples], np.float32), advantages


def logprobs_of(model: PreTrainedModel, tokens: torch.Tensor) -> torch.Tensor:
    """[B, N - 1]: of each token but the first, given those before it."""
    return model(tokens[:, :-1]).logits.log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]


class Policy:
    """The model that is trained, and its optimizer."""

    def __init__(self, base: Path, seed: int, steps: int) -> None:
        torch.manual_seed(seed)
        torch.set_num_threads(1)  # the engines need the other cores
        self.model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0
        )
        self._schedule = torch.optim.lr_scheduler.LinearLR(self._optimizer, 1, LAST, steps)

    def update(self, samples: list[Sample]) -> float:
        """The optimizer steps of one training step: GRPO with a clipped ratio to the policy of the rollouts. Returns the mean loss."""
        order = torch.randperm(len(samples)).tolist()
        losses = []
        for part in range(MINIBATCHES):
            tokens, mask, rollout, advantages = batch_of([samples[i] for i in order[part::MINIBATCHES]])
            ratio = (logprobs_of(self.model, tokens) - rollout[:, 1:]).exp()
            gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
            loss = -gain[mask[:, 1:]].mean()
            self._optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self._optimizer.step()
            losses.append(loss.item())
        self._schedule.step()
        return sum(losses) / len(losses)


def main(url: str, base: Path, folder: Path, steps: int, wanted: int = 8, seed: int = 1) -> None:
    policy = Policy(base, seed, steps)
    snapshots = Snapshots(base, folder)
    tokenizer = AutoTokenizer.from_pretrained(base)
    with Feed(url, consumer="trainer", format="ndjson") as feed:
        for step in range(1, steps + 1):
            began = time.monotonic()
            groups = collect(feed, wanted)
            waited = time.monotonic() - began
            samples = [
                sample
                for group in groups
                for sample in samples_of(
                    [(row.tokens, row.loss_mask, row.logprobs, row.reward or 0.0) for row in group.rows]
                )
            ]
            loss = policy.update(samples)
            save(policy.model, folder / f"step-{step}")
            httpx.post(f"{url}/swap", json={"identity": f"step-{step}"}).raise_for_status()
            feed.ack(*groups)
            trained = time.monotonic() - began
            rows = [row for group in groups for row in group.rows]
            facts = {
                "step": step,
                "reward": float(np.mean([row.reward or 0.0 for row in rows])),
                "loss": loss,
                "rows": len(rows),
                "lag": max(row.lag for row in rows),
                "waited": waited,
                "seconds": trained,
                **measure(groups, snapshots, tokenizer),
            }
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *map(int, sys.argv[4:]))
