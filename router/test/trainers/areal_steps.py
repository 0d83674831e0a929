"""AReaL's own asynchronous rollouts and weight updates through a router in front of real SGLang engines: three steps, two sets of weights.

RemoteSGLangEngine, its workflow executor with the staleness gate, RLVRWorkflow and the updates from disk are AReaL's. The order of the calls is that of
its trainer (`rl_trainer.py`) and of FSDPEngine's `_update_weights_from_disk`, which need a GPU; the weights of each version are a copy of a model
instead of what was trained.

    python areal_steps.py ROUTER_URL --models FOLDER --out FOLDER

Writes `samples.json`: for each step its trajectories as AReaL trains on them.
"""

from __future__ import annotations

import argparse
import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from areal.api import WeightUpdateMeta
from areal.api.cli_args import GenerationHyperparameters, InferenceEngineConfig, NameResolveConfig
from areal.engine import RemoteSGLangEngine
from areal.utils import name_resolve, names
from areal.workflow.rlvr import RLVRWorkflow
from torchdata.stateful_dataloader import StatefulDataLoader

STEPS = 3
# The weights of each version.
VERSIONS = ("dense", "dense_v2", "dense")
EXPERIMENT, TRIAL = "turnout", "real"
BATCH = 4
GROUP = 4
NEW_TOKENS = 400


def reward(prompt: str, completion: str, prompt_ids: list[int], completion_ids: list[int], **question: Any) -> float:
    return float(len(completion_ids))


def config() -> InferenceEngineConfig:
    return InferenceEngineConfig(
        experiment_name=EXPERIMENT,
        trial_name=TRIAL,
        backend="sglang:d1",
        consumer_batch_size=BATCH,
        max_concurrent_rollouts=2 * BATCH,
        max_head_offpolicyness=2,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("router")
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    name_resolve.reconfigure(NameResolveConfig(type="nfs", nfs_record_root=str(given.out / "names")))

    rollout = RemoteSGLangEngine(config())
    # The router is AReaL's only server.
    rollout.initialize(addr=urlparse(given.router).netloc, train_data_parallel_size=1)
    questions = [{"messages": [{"role": "user", "content": f"What is {n} times seven?"}]} for n in range(40)]
    loader = StatefulDataLoader(questions, batch_size=BATCH, collate_fn=list)
    workflow = RLVRWorkflow(
        reward_fn=reward,
        gconfig=GenerationHyperparameters(max_new_tokens=NEW_TOKENS, temperature=1.0),
        tokenizer=str(given.models / "dense"),
    )
    steps = []
    for step in range(STEPS):
        batch = rollout.prepare_batch(loader, workflow=workflow, group_size=GROUP)
        steps.append([plain(trajectory, i) for trajectory in batch for i in range(len(trajectory["rewards"]))])
        if step + 1 < STEPS:
            rollout.pause()
            update(rollout, given.models / VERSIONS[step + 1], given.out / "weight_update", step)
            rollout.set_version(step + 1)
            rollout.resume()
    (given.out / "samples.json").write_text(json.dumps(steps))
    rollout.destroy()


def update(rollout: RemoteSGLangEngine, model: Path, folder: Path, version: int) -> None:
    """`FSDPEngine._update_weights_from_disk` of one rank."""
    meta = WeightUpdateMeta(type="disk", path=str(folder)).with_version(version + 1)
    rollout.pause_generation()
    loaded = rollout.update_weights_from_disk(meta)
    shutil.copytree(model, str(meta.path))
    saved = names.update_weights_from_disk(EXPERIMENT, TRIAL, version)
    name_resolve.add(saved, str(datetime.now().timestamp()), keepalive_ttl=120)
    loaded.result()
    rollout.continue_generation()


def plain(trajectory: dict[str, Any], i: int) -> dict[str, Any]:
    length = int(trajectory["attention_mask"][i].sum())
    rows = {name: trajectory[name][i][:length].tolist() for name in ("input_ids", "loss_mask", "logprobs", "versions")}
    return {**rows, "reward": float(trajectory["rewards"][i])}


if __name__ == "__main__":
    main()
