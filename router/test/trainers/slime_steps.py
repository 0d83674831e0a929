"""slime's own rollouts and weight updates through a router in front of real SGLang engines: three steps, two sets of weights.

slime's are: its argument parsers, the registration of engines, the data source with its buffer, `generate_rollout` with its aborts, and the client of an
engine that updates weights. They run in one process instead of Ray actors, which need an accelerator. Megatron is missing: its arguments that slime reads
have the values below, and the weights of each version are a copy of a model instead of what was trained.

    PYTHONPATH=checkout python slime_steps.py ROUTER_URL ENGINE_URL... --models FOLDER --out FOLDER

Writes `samples.json`: for each step its samples as slime stores them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

# The weights of each version.
VERSIONS = {"1": "dense", "2": "dense_v2", "3": "dense"}
QUESTIONS = 40


def command_line(router: str, engines: list[str], model: Path, out: Path) -> list[str]:
    """What a user writes. The first lines are what turnout needs, the others are the run."""
    at = urlparse(router)
    engine_addresses = [urlparse(engine).netloc for engine in engines]
    return [
        *("--sglang-router-ip", str(at.hostname), "--sglang-router-port", str(at.port)),
        *("--router-policy", "consistent_hashing"),
        *("--rollout-external-engine-addrs", *engine_addresses),
        *("--hf-checkpoint", str(model), "--prompt-data", str(out / "questions.jsonl")),
        *("--input-key", "question", "--label-key", "answer", "--apply-chat-template", "--rm-type", "random"),
        *("--rollout-batch-size", "3", "--n-samples-per-prompt", "4", "--num-rollout", str(len(VERSIONS))),
        *("--over-sampling-batch-size", "6", "--partial-rollout", "--mask-offpolicy-in-partial-rollout"),
        *("--rollout-max-response-len", "400", "--rollout-temperature", "1"),
        "--debug-rollout-only",
    ]


def parsed(words: list[str]) -> argparse.Namespace:
    """As slime's `parse_args`, whose second phase is Megatron's parser with slime's arguments added to it."""
    from slime.backends.sglang_utils.arguments import sglang_parse_args
    from slime.backends.sglang_utils.arguments import validate_args as validate_sglang
    from slime.utils import arguments

    sys.argv = ["train.py", *words]
    # Megatron's.
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.set_defaults(seed=1234, fp16=False, finetune=False)
    arguments.get_slime_extra_args_provider()(parser)
    args, _ = parser.parse_known_args(words)
    for of_phase in (arguments._pre_parse_mode(), sglang_parse_args()):
        for name, value in vars(of_phase).items():
            setattr(args, name, value)
    arguments.slime_validate_args(args)
    validate_sglang(args)
    return args


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("router")
    parser.add_argument("engines", nargs="+")
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    run(given.router, given.engines, given.models, given.out)


def run(router: str, engines: list[str], models: Path, out: Path) -> None:
    questions = [{"question": f"What is {n} times seven?", "answer": str(n * 7)} for n in range(QUESTIONS)]
    (out / "questions.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in questions))
    args = parsed(command_line(router, engines, models / "dense", out))

    from slime.rollout.base_types import call_rollout_fn
    from slime.utils.http_utils import init_http_client
    from slime.utils.misc import load_function

    init_http_client(args)
    clients = [client_of(args, engine) for engine in engines]
    for client in clients:
        client._register_to_router({})
    wait_until_ready(router, len(clients))
    # The calls of `RayTrainGroup._reload_rollout_weights_from_disk`, to the engines; before step 2 slime's client gets the router as its engine.
    through = {"1": clients, "2": clients, "3": [client_of(args, router)]}
    source = load_function(args.data_source_path)(args)
    generate = load_function(args.rollout_function_path)
    steps: list[list[dict[str, Any]]] = []
    for step, (version, model) in enumerate(VERSIONS.items()):
        reload(through[version], models / model, version)
        output = call_rollout_fn(generate, args, step, source, evaluation=False)
        steps.append([plain(sample.to_dict()) for group in output.samples for sample in group])
        print(f"step {step}: {len(steps[-1])} samples", flush=True)
    (out / "samples.json").write_text(json.dumps(steps))


def client_of(args: argparse.Namespace, url: str) -> Any:
    """As `SGLangEngine.init` makes it for an external engine."""
    from slime.backends.sglang_utils.sglang_engine import SGLangEngine

    client = SGLangEngine(args, rank=0)
    at = urlparse(url)
    client.node_rank, client.server_host, client.server_port = 0, at.hostname, at.port
    client.router_ip, client.router_port = args.sglang_router_ip, args.sglang_router_port
    return client


def wait_until_ready(router: str, count: int) -> None:
    """slime starts when its engines have registered themselves; the router sends them requests as soon as it has found them healthy."""
    import requests

    for _ in range(120):
        workers = requests.get(f"{router}/workers", timeout=30).json()["workers"]
        if sum(worker["is_healthy"] for worker in workers) == count:
            return
        time.sleep(1)
    raise TimeoutError(f"the router found no {count} healthy workers: {workers}")


def reload(clients: list[Any], weights: Path, version: str) -> None:
    for client in clients:
        client.pause_generation()
    for client in clients:
        client.flush_cache()
    for client in clients:
        client.update_weights_from_disk(model_path=str(weights), weight_version=version)
    for client in clients:
        client.continue_generation()


def plain(sample: dict[str, Any]) -> dict[str, Any]:
    names = ("session_id", "tokens", "response_length", "loss_mask", "rollout_log_probs", "weight_versions", "status")
    return {name: sample[name] for name in names}


if __name__ == "__main__":
    main()
