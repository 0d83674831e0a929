"""What trainers and rollouts with the Fireworks SDK do, in steps. Each prints JSON lines, which the tests read."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import types
from typing import Any

from fireworks.training.sdk.deployment import DeploymentConfig, DeploymentManager, DeploymentSampler
from fireworks.training.sdk.weight_syncer import WeightSyncer

DEPLOYMENT = "dep"


def say(step: str, **fields: Any) -> None:
    print(json.dumps({"step": step, **fields}), flush=True)


def deployed(manager: DeploymentManager, args: Any) -> None:
    """The control plane: the deployment is found, ready, and given to a trainer."""
    config = DeploymentConfig(deployment_id=DEPLOYMENT, base_model=args.model, region="US_VIRGINIA_1")
    manager.create_or_get(config)
    ready = manager.wait_for_ready(DEPLOYMENT, timeout_s=30, poll_interval_s=0.1)
    job = f"accounts/{manager.account_id}/rlorTrainerJobs/job"
    attached = manager.reattach_trainer(
        DEPLOYMENT,
        base_model=args.model,
        trainer_job_name=job,
        timeout_s=30,
        poll_interval_s=0.1,
        hot_load_transition_type=args.transition,
    )
    say("deployed", account=manager.account_id, ready=dataclasses.asdict(ready), attached=dataclasses.asdict(attached))


def hot_load(manager: DeploymentManager, args: Any) -> None:
    """Signals each snapshot and polls until it is served."""
    for identity in args.snapshots:
        manager.hotload(DEPLOYMENT, args.model, identity)
        is_loaded = manager.wait_for_hotload(DEPLOYMENT, args.model, identity, timeout_seconds=60, poll_interval=0.1)
        replicas = manager.hotload_check_status(DEPLOYMENT, args.model)["replicas"]
        say("hot_load", identity=identity, is_loaded=is_loaded, replicas=replicas)
    model = f"accounts/{manager.account_id}/deployments/{DEPLOYMENT}"
    say("warm", is_warm=manager.warmup(model, max_retries=3, retry_interval_s=0.2))


def failing(manager: DeploymentManager, args: Any) -> None:
    """A snapshot that no engine can load, and a delta: the SDK reports both as failed."""
    manager.hotload(DEPLOYMENT, args.model, "broken")
    is_loaded = manager.wait_for_hotload(DEPLOYMENT, args.model, "broken", timeout_seconds=60, poll_interval=0.1)
    say("failed", is_loaded=is_loaded, message=manager.last_hotload_error_message)
    metadata = {"previous_snapshot_identity": "v1", "compression_format": "arc_v2", "checksum_format": "alder32"}
    try:
        manager.hotload(DEPLOYMENT, args.model, "delta", incremental_snapshot_metadata=metadata)
    except Exception as error:  # noqa: BLE001
        say("refused", error=str(error))


def syncer(manager: DeploymentManager, args: Any) -> None:
    """The SDK's own loop of a trainer, whose snapshots are complete."""

    def save(name: str, checkpoint_type: str) -> Any:
        return types.SimpleNamespace(snapshot_name=f"{name}-{checkpoint_type}")

    policy: Any = types.SimpleNamespace(save_weights_for_sampler_ext=save)
    sync = WeightSyncer(
        policy_client=policy,
        deploy_mgr=manager,
        deployment_id=DEPLOYMENT,
        base_model=args.model,
        lora_rank=8,
        warmup_max_retries=3,
    )
    say("synced", snapshot=sync.save_and_hotload("sync-1"))


async def sampled(manager: DeploymentManager, args: Any, index: int) -> None:
    model = f"accounts/{manager.account_id}/deployments/{DEPLOYMENT}"
    sampler = DeploymentSampler(inference_url=manager.inference_url, model=model, api_key=manager.api_key, tokenizer=None)
    prompt = [300 + (31 * index + 7 * i) % 400 for i in range(24)]
    result = await sampler.sample_with_prompt_tokens_result(
        prompt,
        max_tokens=args.tokens,
        logical_request_id=f"rollout-{index}",
        logprobs=True,
        hotload_retry_interval=0.2,
        hotload_max_retries=100,
        prompt_cache_key=f"trajectory-{index}",
    )
    [completion] = result.completions
    metrics = result.server_metrics
    say(
        "sampled",
        finish_reason=completion.finish_reason,
        prompt=prompt,
        tokens=completion.full_tokens[completion.prompt_len :],
        logprobs=completion.sampling_logprobs,
        request_id=metrics.response_request_id,
        concurrent=metrics.num_concurrent_requests,
        attempts=result.attempts,
    )


def rollouts(manager: DeploymentManager, args: Any) -> None:
    """Streams of the SDK's sampler, all at once."""

    async def run() -> None:
        say("began")
        await asyncio.gather(*(sampled(manager, args, i) for i in range(args.count)))

    asyncio.run(run())


STEPS = {step.__name__: step for step in (deployed, hot_load, failing, syncer, rollouts)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", nargs="+", choices=STEPS)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", default="accounts/acct/models/sim")
    parser.add_argument("--transition", default="ASYNC")
    parser.add_argument("--snapshots", nargs="*", default=["v1", "v2"])
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    with DeploymentManager(api_key="fw-key", base_url=args.base_url) as manager:
        for step in args.steps:
            STEPS[step](manager, args)


if __name__ == "__main__":
    main()
