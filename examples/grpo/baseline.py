"""The same training without sessions, exact tokens, resume or swaps by the router: python baseline.py BASE SNAPSHOTS STEPS GROUPS SEED ENGINE...

What many loops do today. The agent's requests go to the engines in turn; its conversations come as text (lines on stdin) and are tokenised
again; their logprobs are those of the trainer's own weights; for an update the trainer pauses each engine, loads the weights and lets
it go on. The loss is the one of `trainer.py`. The ids and logprobs that the agent also wrote down serve for measurements only.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from student import render, save
from trainer import Policy, logprobs_of, samples_of

MEMBERS = 8


def load_weights(engines: list[str], path: Path) -> float:
    """Pauses all engines, loads, and lets them go on. Returns the seconds for which new requests had to wait."""
    began = time.monotonic()
    with httpx.Client(timeout=600) as http:
        alive = [url for url in engines if is_alive(http, url)]
        is_vllm = {url: http.get(f"{url}/version").is_success for url in alive}
        # vLLM lets requests in flight end; SGLang has no such mode, and ends them with the reason `abort`.
        for url in alive:
            pause = ("/pause?mode=wait", None) if is_vllm[url] else ("/pause_generation", {"mode": "abort"})
            http.post(url + pause[0], json=pause[1]).raise_for_status()
        for url in alive:
            if is_vllm[url]:
                call = {"method": "reload_weights", "kwargs": {"weights_path": str(path.resolve())}}
                http.post(f"{url}/collective_rpc", json=call).raise_for_status()
                http.post(f"{url}/reset_prefix_cache").raise_for_status()
                http.post(f"{url}/resume").raise_for_status()
            else:
                call = {"model_path": str(path.resolve())}
                http.post(f"{url}/update_weights_from_disk", json=call).raise_for_status()
                http.post(f"{url}/continue_generation", json={}).raise_for_status()
        return time.monotonic() - began


def is_alive(http: httpx.Client, url: str) -> bool:
    try:
        return http.get(f"{url}/v1/models", timeout=5).is_success
    except httpx.TransportError:
        return False


def turns_in(written: list[bool]) -> list[tuple[int, int]]:
    """Where each turn of the assistant begins and ends."""
    edges = [0, *(i for i, (a, b) in enumerate(pairwise(written), 1) if a != b), len(written)]
    return [(a, b) for a, b in pairwise(edges) if written[a]]


@torch.no_grad()
def measure(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, session: dict[str, Any]) -> dict[str, Any]:
    """What tokenising again changed: turns with other ids; |Δ| of their logprobs in sum, under the same weights; and for equal ids
    |Δ| of each token between the trainer and the engine that sampled it."""
    ids, written = render(tokenizer, session["messages"])
    own = logprobs_of(model, torch.tensor([ids]))[0]
    changed, shifted, mismatch = 0, [], []
    end = tokenizer.eos_token_id
    for (begin, stop), turn in zip(turns_in(written), session["turns"], strict=True):
        sampled = turn["ids"]
        if ids[begin : begin + len(sampled)] == sampled and begin + len(sampled) in (stop, stop - 1):
            told = torch.tensor(turn["logprobs"])
            mismatch += (own[begin - 1 : begin - 1 + len(sampled)] - told).abs().tolist()
            continue
        changed += 1
        retold = ids[begin:stop] if sampled[-1:] == [end] else ids[begin : stop - 1]
        exact = logprobs_of(model, torch.tensor([ids[:begin] + sampled]))[0][begin - 1 :].sum()
        shifted.append(float((own[begin - 1 : begin - 1 + len(retold)].sum() - exact).abs()))
    return {"turns": len(session["turns"]), "changed": changed, "shifted": shifted, "mismatch": mismatch}


def main(base: Path, folder: Path, steps: int, wanted: int, seed: int, engines: list[str]) -> None:
    policy = Policy(base, seed, steps)
    model = policy.model
    tokenizer = AutoTokenizer.from_pretrained(base)
    open_groups: dict[str, list[dict[str, Any]]] = {}
    for step in range(1, steps + 1):
        began = time.monotonic()
        ready: list[list[dict[str, Any]]] = []
        while len(ready) < wanted:
            session = json.loads(sys.stdin.readline())
            group = open_groups.setdefault(session["group"], [])
            group.append(session)
            if len(group) == MEMBERS:
                ready.append(open_groups.pop(session["group"]))
        waited = time.monotonic() - began
        sessions = [session for group in ready for session in group]
        measured = [measure(model, tokenizer, session) for session in sessions]
        measuring = time.monotonic() - began - waited
        samples = []
        for group in ready:
            rows = []
            for session in group:
                ids, written = render(tokenizer, session["messages"])
                with torch.no_grad():
                    rollout = np.concatenate([[0.0], logprobs_of(model, torch.tensor([ids]))[0].numpy()])
                rows.append((np.array(ids), np.array(written), rollout, session["reward"]))
            samples += samples_of(rows)
        loss = policy.update(samples)
        save(model, folder / f"step-{step}")
        paused = load_weights(engines, folder / f"step-{step}")
        facts = {
            "step": step,
            "reward": float(np.mean([session["reward"] for session in sessions])),
            "loss": loss,
            "rows": len(sessions),
            "waited": waited,
            "seconds": time.monotonic() - began - measuring,
            "paused": paused,
            "turns": sum(each["turns"] for each in measured),
            "changed": sum(each["changed"] for each in measured),
            "shifted": [round(each, 6) for one in measured for each in one["shifted"]],
            "mismatch": [round(each, 6) for one in measured for each in one["mismatch"]],
        }
        print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:6]), sys.argv[6:])
