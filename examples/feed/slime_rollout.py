"""slime trains on groups of the feed: a rollout function, a data source and rewards within groups.

    PYTHONPATH=examples/feed python train.py ... --rollout-global-dataset \\
      --rollout-function-path slime_rollout.generate_rollout --data-source-path slime_rollout.FeedDataSource \\
      --custom-reward-post-process-path slime_rollout.group_rewards --custom-config-path turnout.yaml

`turnout.yaml` has `turnout_url`, and where needed `turnout_api_key` and `turnout_lease_secs` (seconds, default 1800). Agents run anywhere and
call the router; slime only takes the finished groups, `--rollout-batch-size` of them for each step. The router runs with
`--plugin 'feed:{"groupSize":N}'`, N being `--n-samples-per-prompt`, and `stepGroups` and `maxLag` for backpressure.

A group is acked when slime saves its checkpoint (`--save-interval`), and its id is saved with it: after a crash the groups since the last
checkpoint come again when their leases pass, and those of the checkpoint do not. Each step renews the leases. `group_rewards` is GRPO's
normalization for groups of any number of trajectories: slime's own needs exactly N of each group, and a session with a branched history
has several.

Checked with slime 0.3.1 (tag v0.3.1 and commit 624b824 after it), torch 2.15.0 on the CPU: its Sample, RolloutFnTrainOutput, call_rollout_fn,
DataSource, validate_rollout_id_annotated, and the conversion of samples to training data: `test_adapters.py`. Not checked: a
training step, which needs GPUs. Samples have no `prompt` and `response` texts: tokens are what was sampled.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from slime.rollout.base_types import RolloutFnTrainOutput
from slime.rollout.data_source import DataSource
from slime.utils.types import Sample

from turnout.feed import Feed, Group, LeaseLost, Row

_log = logging.getLogger(__name__)
_STATUS = {"length": Sample.Status.TRUNCATED, "abort": Sample.Status.ABORTED}
_MAX_IDS = 100_000


class FeedDataSource(DataSource):
    """Groups of the feed, until a checkpoint has them."""

    def __init__(self, args: Any) -> None:
        self._args = args
        lease_secs = getattr(args, "turnout_lease_secs", 1800)
        key = getattr(args, "turnout_api_key", None)
        self._feed = Feed(args.turnout_url, key, consumer="slime", lease_secs=lease_secs, max_groups=1)
        # Groups that no checkpoint has, with the rollout that they are for, and ids of groups that a checkpoint has.
        self._taken: dict[int, tuple[int, Group]] = {}
        self._saved: list[int] = []
        self._samples = 0
        self._groups = 0

    def take(self, rollout_id: int, count: int) -> list[Group]:
        """Waits for `count` groups that slime has not trained on."""
        for _, group in self._taken.values():
            try:
                self._feed.renew(group)
            except LeaseLost:
                _log.warning("the lease of group %d has passed before a checkpoint: raise turnout_lease_secs", group.id)
        groups: list[Group] = []
        saved = set(self._saved)
        while len(groups) < count:
            for group in self._feed.take():
                if group.id in saved:
                    self._feed.ack(group)
                    continue
                if group.id not in self._taken:
                    groups.append(group)
                # Of one that came again the new lease counts. Its arrays are with slime.
                first, _ = self._taken.get(group.id, (rollout_id, group))
                self._taken[group.id] = (first, replace(group, rows=[]))
        return groups

    def samples(self, group: Group) -> list[Sample]:
        """The rows of a group as samples; those of one session share `rollout_id`."""
        first: dict[str, int] = {}
        samples = []
        for row in group.rows:
            rollout = first.setdefault(row.session, self._samples)
            samples.append(_sample(self._args, group, row, self._groups, self._samples, rollout))
            self._samples += 1
        self._groups += 1
        return samples

    def save(self, rollout_id: int) -> None:
        """Stores the ids of the groups of all rollouts up to this one, then acks these groups."""
        done = [group for first, group in self._taken.values() if first <= rollout_id]
        self._saved = [*self._saved, *(group.id for group in done)][-_MAX_IDS:]
        path = self._path(self._args.save, rollout_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {"groups": self._groups, "samples": self._samples, "saved": self._saved}
        path.with_suffix(".new").write_text(json.dumps(state))
        path.with_suffix(".new").replace(path)
        for group in done:
            del self._taken[group.id]
            try:
                self._feed.ack(group)
            except LeaseLost:
                _log.warning("the lease of group %d has passed: it is acked when it comes again", group.id)

    def load(self, rollout_id: int | None = None) -> None:
        """Reads what `save` stored with the checkpoint that slime starts from."""
        if (
            self._args.load is None
            or rollout_id is None
            or not (path := self._path(self._args.load, rollout_id)).exists()
        ):
            _log.info("no groups of the feed are saved: slime starts without a checkpoint")
            return
        state = json.loads(path.read_text())
        self._groups, self._samples, self._saved = state["groups"], state["samples"], state["saved"]

    def get_samples(self, num_samples: int) -> list[list[Sample]]:
        raise NotImplementedError(
            "prompts come from the agents: use --rollout-function-path slime_rollout.generate_rollout"
        )

    def add_samples(self, samples: list[list[Sample]]) -> None:
        raise NotImplementedError("groups are given back to the router, not to slime")

    def __len__(self) -> int:
        return int(self._feed.stats()["ready"])

    @staticmethod
    def _path(folder: str, rollout_id: int) -> Path:
        return Path(folder) / "rollout" / f"turnout_feed_{rollout_id}.json"


def generate_rollout(
    args: Any, rollout_id: int, data_source: FeedDataSource, evaluation: bool = False
) -> RolloutFnTrainOutput:
    """For `--rollout-function-path`: the groups of one training step."""
    if evaluation:
        raise ValueError("the feed has groups for training: set --eval-function-path to a function that generates")
    groups = data_source.take(rollout_id, args.rollout_batch_size)
    rows = [row for group in groups for row in group.rows]
    metrics = {
        "rollout/turnout_lag": float(np.mean([row.lag for row in rows])),
        "rollout/turnout_redelivered": sum(group.deliveries > 1 for group in groups),
    }
    return RolloutFnTrainOutput(samples=[data_source.samples(group) for group in groups], metrics=metrics)


def group_rewards(args: Any, samples: list[Sample]) -> tuple[list[float], list[float]]:
    """For `--custom-reward-post-process-path`: rewards as they came, and normalized within each group as slime does it."""
    raw = [float(sample.get_reward_value(args)) for sample in samples]
    if args.advantage_estimator not in ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline"):
        return raw, raw
    if not args.rewards_normalization:
        return raw, raw
    normal = torch.tensor(raw, dtype=torch.float)
    groups = torch.tensor([sample.group_index for sample in samples])
    for group in groups.unique():
        members = groups == group
        normal[members] -= normal[members].mean()
        if args.advantage_estimator != "reinforce_plus_plus_baseline" and args.grpo_std_normalization:
            # One trajectory has no deviation.
            normal[members] /= (normal[members].std() if members.sum() > 1 else 0.0) + 1e-6
    return raw, normal.tolist()


def _sample(args: Any, group: Group, row: Row, group_index: int, index: int, rollout_id: int) -> Sample:
    prompt = int(row.loss_mask.argmax())
    if np.isnan(row.logprobs[row.loss_mask == 1]).any():
        raise ValueError(f"session {row.session} has unknown logprobs: leave unknown_logprobs in dropFlags of the feed")
    versions = dict.fromkeys(row.versions[row.versions >= 0].tolist())
    return Sample(
        group_index=group_index,
        index=index,
        rollout_id=rollout_id,
        tokens=row.tokens.tolist(),
        response_length=len(row.tokens) - prompt,
        loss_mask=row.loss_mask[prompt:].tolist(),
        rollout_log_probs=row.logprobs[prompt:].tolist(),
        rollout_routed_experts=None
        if row.routed_experts is None
        else torch.from_numpy(row.routed_experts.astype(np.int32)),
        reward=row.rewards if args.reward_key else row.reward,
        status=_STATUS.get(row.finish_reason or "", Sample.Status.COMPLETED),
        weight_versions=[group.version_names[i] for i in versions],
        session_id=row.session,
        metadata={"group": group.name, "lag": row.lag, "flags": row.flags, "labels": row.labels, "turns": row.turns},
    )
