"""A trainer: python trainer.py ROUTER STEPS [CHECKPOINT]. One group is one step, and no group is trained on twice."""

import json
import os
import sys
from pathlib import Path

import numpy as np

from turnout.feed import Feed, Group


def train(group: Group) -> float:
    """The place of the optimizer step. Returns the loss with the log-probabilities of the rollout, for a first look."""
    assert all(row.reward is not None for row in group.rows), "a row without reward: give the feed needsReward"
    rewards = np.array([row.reward for row in group.rows], np.float64)
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    losses = [-(each * row.logprobs)[row.loss_mask == 1] for each, row in zip(advantages, group.rows, strict=True)]
    return float(np.nanmean(np.concatenate(losses)))


def main(url: str, steps: int, checkpoint: Path) -> None:
    state = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"step": 0, "trained": []}
    with Feed(url, api_key=os.environ.get("TURNOUT_KEY"), consumer="trainer") as feed:
        for group in feed:
            # A group comes again after a crash between the checkpoint and the ack.
            if group.id not in state["trained"]:
                loss = train(group)
                state = {"step": state["step"] + 1, "trained": [*state["trained"], group.id][-1000:]}
                # The weights are saved in the same step: either both or none.
                checkpoint.with_suffix(".new").write_text(json.dumps(state))
                checkpoint.with_suffix(".new").replace(checkpoint)
                print(f"step {state['step']}: {group.name}, {len(group.rows)} trajectories, loss {loss:.3f}")
            feed.ack(group)
            if state["step"] >= steps:
                break


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3] if len(sys.argv) > 3 else "checkpoint.json"))
