"""The report: python report.py FOLDER reads what the runs in FOLDER wrote and makes report.md and its plots there.

Ends with status 1 if a run did not learn, or if a delivered token is not what was sampled. Learning is judged from 10 steps on.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot

MEDIAN, P99, GAIN, JUDGED_STEPS, SAME_EXPERTS, COMPUTED = 0.005, 0.05, 0.2, 10, 0.999, 0.95


class Run:
    """One training, from its folder."""

    def __init__(self, folder: Path) -> None:
        self.steps = lines(folder / "steps.jsonl")
        self.sessions = {each["session"]: each for each in lines(folder / "sessions.jsonl")}
        self.facts: dict[str, Any] = json.loads((folder / "run.json").read_text())
        self.metrics = (folder / "metrics.txt").read_text()
        self.swaps: list[dict[str, Any]] = json.loads((folder / "swaps.json").read_text())
        feed = folder / "feed.json"
        self.dropped: dict[str, int] = json.loads(feed.read_text())["droppedMembers"] if feed.exists() else {}
        self.turns = [turn for session in self.sessions.values() for turn in session["turns"]]

    def all(self, field: str) -> np.ndarray:
        """The values of a list that every step has."""
        return np.array([value for step in self.steps for value in step[field]], np.float64)

    def total(self, field: str) -> Any:
        return sum(step[field] for step in self.steps)

    def metric(self, name: str) -> int:
        """A counter of the router, all its labels that match together."""
        return int(
            sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? ([\d.e+-]+)$", self.metrics, re.MULTILINE))
        )

    def mean_reward(self, which: slice) -> float:
        return float(np.mean([step["reward"] for step in self.steps[which]]))

    @property
    def gain(self) -> float:
        return self.mean_reward(slice(-5, None)) - self.mean_reward(slice(5))

    @property
    def sampled(self) -> int:
        """Tokens that were sampled and delivered."""
        return sum(count for step in self.steps for turns in step["delivered"].values() for _, count in turns)

    @property
    def repeated(self) -> int:
        """Requests that the agent sent again."""
        return sum(turn["retries"] for turn in self.turns)

    @property
    def hit_rate(self) -> float:
        return sum(turn["cached"] for turn in self.turns) / max(1, sum(turn["prompt"] for turn in self.turns))

    @property
    def paused(self) -> np.ndarray:
        """Seconds for which each engine was paused at each swap: the router's, or the trainer's own."""
        if not self.swaps:
            return np.array([step["paused"] for step in self.steps])
        engines = [engine for swap in self.swaps for engine in swap["engines"] if engine["stage"] == "done"]
        return np.array([sum(engine["phases_ms"].values()) / 1000 for engine in engines])

    def false_turns(self) -> list[str]:
        """Delivered turns that are not what the agent received: another text, or another number of tokens."""
        false = []
        for step in self.steps:
            for name, delivered in step["delivered"].items():
                received = [[turn["text"], turn["tokens"]] for turn in self.sessions[name]["turns"]]
                # Of a character whose last bytes were not sampled engines send nothing, and a tokenizer makes U+FFFD.
                if [[text.rstrip("\ufffd"), tokens] for text, tokens in delivered] != received:
                    false.append(f"{name}: received {received}, delivered {delivered}")
        return false


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def quantiles(values: np.ndarray) -> str:
    """Median and p99."""
    return f"{np.median(values):.2g} / {np.quantile(values, 0.99):.2g}" if len(values) else "-"


def table(head: list[str], rows: list[list[object]]) -> str:
    cells = [head, ["---", *["---:" for _ in head[1:]]], *rows]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in cells) + "\n"


def verdicts(seed: str, run: Run) -> list[tuple[bool, str]]:
    own, neighbour, cut, swapped = (run.all(field) for field in ("own", "neighbour", "cut", "cut_swapped"))
    false = run.false_turns()
    failed = run.metric('turnout_requests_total{outcome="(?:refused|cut)"}')
    found = [
        (
            float(np.median(own)) <= MEDIAN and float(np.quantile(own, 0.99)) <= P99,
            f"|Δ log p| under the label's snapshot: median {np.median(own):.2g} (at most {MEDIAN}), p99 {np.quantile(own, 0.99):.2g} (at most {P99})",
        ),
        clearly_larger("under the snapshot before it", neighbour, own),
        clearly_larger("of turns that a swap cut, under each other's weights", swapped, cut),
        (
            not false,
            f"turns whose text or number of tokens differs from what the agent received: {'; '.join([str(len(false)), *false[:3]])}",
        ),
        (
            len(own) >= COMPUTED * run.sampled,
            f"delivered tokens whose log p was computed again: {len(own):,} of {run.sampled:,} (at least {COMPUTED:.0%})",
        ),
        (
            set(run.dropped) <= {"stale"},
            f"sessions that the feed dropped: {run.dropped or 'none'} (only for their age: stale)",
        ),
        (failed + run.repeated == 0, f"failed requests: {failed}, repeated by the agent: {run.repeated}"),
    ]
    if len(run.steps) >= JUDGED_STEPS:
        gain = f"mean reward of the last five steps minus that of the first five: {run.gain:+.2f} (at least +{GAIN})"
        found.insert(0, (run.gain >= GAIN, gain))
    return [(holds, f"seed {seed}: {text}") for holds, text in found]


def clearly_larger(name: str, values: np.ndarray, than: np.ndarray) -> tuple[bool, str]:
    """By the means: most tokens are the same under any weights that speak the format."""
    if len(values) == 0 or len(than) == 0:
        return True, f"|Δ log p| {name}: there are no such tokens"
    means = f"mean {values.mean():.2g}, with their own {than.mean():.2g} (more than ten times as large)"
    return bool(values.mean() > 10 * than.mean()), f"|Δ log p| {name}: {means}"


def reward_plot(runs: dict[str, dict[str, Run]], file: Path) -> None:
    figure, axes = pyplot.subplots(figsize=(7, 3.5), layout="constrained")
    for way, colour, label in (
        ("turnout", "tab:blue", "turnout"),
        ("baseline", "tab:orange", "text, round robin, pauses"),
    ):
        for i, run in enumerate(each[way] for each in runs.values() if way in each):
            rewards = [step["reward"] for step in run.steps]
            axes.plot(range(1, len(rewards) + 1), rewards, color=colour, alpha=0.8, label=label if i == 0 else None)
    axes.set(xlabel="step", ylabel="mean reward", ylim=(0, 1))
    axes.legend(loc="lower right")
    figure.savefig(file, dpi=110)


def times_plot(runs: dict[str, dict[str, Run]], file: Path) -> None:
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    ways = [way for way in ("turnout", "baseline") if any(way in each for each in runs.values())]
    paused = [np.concatenate([each[way].paused for each in runs.values() if way in each]) for way in ways]
    left.hist(paused, bins=30, label=ways)
    left.set(xlabel="seconds for which new requests wait for a swap", ylabel="engines × swaps")
    left.legend()
    own = np.concatenate([each["turnout"].all("own") for each in runs.values()])
    neighbour = np.concatenate([each["turnout"].all("neighbour") for each in runs.values()])
    bins = np.logspace(-8, 1, 60)
    for values, label in ((own, "snapshot of the label"), (neighbour, "the snapshot before")):
        right.hist(np.maximum(values, 1e-8), bins, label=label, alpha=0.7)
    right.set(xscale="log", xlabel="|Δ log p| of a sampled token", ylabel="tokens")
    right.legend()
    figure.savefig(file, dpi=110)


def truth_table(runs: dict[str, dict[str, Run]]) -> str:
    rows: list[list[object]] = []
    for seed, ways in runs.items():
        run = ways["turnout"]
        rows.append(
            [
                seed,
                f"{run.sampled:,}",
                run.total("unknown"),
                run.total("cuts"),
                run.metric("turnout_resumes_total"),
                quantiles(run.all("own")),
                f"{run.all('own').max():.2g}",
                quantiles(run.all("neighbour")),
                len(run.false_turns()),
            ]
        )
    head = ["seed", "sampled tokens", "version unknown", "turns cut by swaps", "turns continued after the kill"]
    return table([*head, "Δ log p, its snapshot", "largest", "Δ log p, the one before", "turns that differ"], rows)


def comparison_table(runs: dict[str, dict[str, Run]]) -> str:
    def cell(way: str, value: Any) -> str:
        return " · ".join(value(each[way]) for each in runs.values() if way in each)

    def row(name: str, value: Any, baseline: Any = None) -> list[object]:
        return [name, cell("turnout", value), cell("baseline", baseline or value)]

    def share(run: Run) -> str:
        return f"{run.total('changed') / run.total('turns'):.2%}"

    rows = [
        row("reward, first five steps", lambda run: f"{run.mean_reward(slice(5)):.2f}"),
        row("reward, last five steps", lambda run: f"{run.mean_reward(slice(-5, None)):.2f}"),
        row("seconds a step, median", lambda run: f"{np.median([step['seconds'] for step in run.steps]):.1f}"),
        row(
            "seconds for which new requests of an engine wait for a swap, median / max",
            lambda run: f"{np.median(run.paused):.2f} / {run.paused.max():.2f}",
        ),
        row("turns of the agent", lambda run: f"{len(run.turns):,}"),
        row("requests that the agent had to repeat", lambda run: str(run.repeated)),
        row("cached part of the prompts", lambda run: f"{run.hit_rate:.1%}"),
        row(
            "turns whose ids differ from the sampled ones",
            lambda run: f"{len(run.false_turns())} of {len(run.turns):,}",
            share,
        ),
        row("their Δ log p in sum, median / p99", lambda run: "-", lambda run: quantiles(run.all("shifted"))),
        row(
            "Δ between the log p that the loss uses and the engine's, median / p99",
            lambda run: "0 (the engine's)",
            lambda run: quantiles(run.all("mismatch")),
        ),
    ]
    return table(["", "turnout", "baseline"], rows)


def routed_experts(folder: Path) -> tuple[list[tuple[bool, str]], str]:
    found, rows = [], []
    for dtype in ("float32", "bfloat16"):
        facts = json.loads((folder / f"{dtype}.json").read_text())
        own, replayed = np.array(facts["own"]), np.array(facts["replayed"])
        share = facts["same"] / facts["places"]
        rows.append(
            [
                dtype,
                f"{facts['places']:,}",
                f"{share:.3%}",
                quantiles(own),
                quantiles(replayed),
                f"{own.mean():.2g}",
                f"{replayed.mean():.2g}",
            ]
        )
        if dtype == "float32":
            found.append(
                (
                    share >= SAME_EXPERTS,
                    f"experts of (token, layer) equal to the trainer's own choice in float32: {share:.3%} (at least {SAME_EXPERTS:.1%})",
                )
            )
        else:
            lower = f"mean |Δ log p| beside an engine in bfloat16: {own.mean():.2g}, with the delivered experts replayed {replayed.mean():.2g} (lower)"
            found.append((bool(replayed.mean() < own.mean()), lower))
    head = [
        "engine",
        "(token, layer)",
        "same experts",
        "Δ log p, own experts",
        "Δ log p, replayed",
        "mean, own",
        "mean, replayed",
    ]
    holding = "".join(f"- {'holds' if holds else '**DOES NOT HOLD**'}: {line}\n" for holds, line in found)
    return (
        found,
        f"""
## Routed experts

A Qwen3-MoE with random weights (8 experts, 2 for each token, 4 layers) on SGLang, through the feed to a forward pass in float32 that chooses its own experts or uses the delivered ones
(median / p99).

{table(head, rows)}
{holding}""",
    )


def main(folder: Path) -> int:
    runs = {
        seed.name.removeprefix("seed-"): {
            way: Run(seed / way) for way in ("turnout", "baseline") if (seed / way / "run.json").exists()
        }
        for seed in sorted(folder.glob("seed-*"))
    }
    reward_plot(runs, folder / "reward.png")
    times_plot(runs, folder / "times.png")
    first = next(iter(runs.values()))["turnout"]
    machine = json.loads((folder / "machine.json").read_text())
    versions = ", ".join(f"{name} {version(name)}" for name in ("turnout", "torch", "transformers", "openai"))
    engine = "vLLM 0.32.0" if machine["engine"] == "vllm" else "SGLang 0.5.23"
    found = [verdict for seed, ways in runs.items() for verdict in verdicts(seed, ways["turnout"])]
    experts = folder / "experts"
    seconds = ", ".join(f"{run.facts['seconds']:.0f}" for ways in runs.values() for run in ways.values())
    holding = "".join(f"- {'holds' if holds else '**DOES NOT HOLD**'}: {line}\n" for holds, line in found)
    text = f"""# GRPO through turnout

Two {engine} on the CPU of one machine ({machine["cpu"]}, {machine["cores"]} cores), Python {platform.python_version()}, {versions}, Node.js {machine["node"]}.
{len(first.steps)} steps of {first.facts["groups"]} groups of 8 sessions for each seed; seconds of the whole runs: {seconds}.
One engine of each run is killed halfway and started again.

![Reward by step](reward.png)

## What must hold

{holding}
## Truth of ids and labels

Δ log p is the difference between the delivered logprob of a sampled token and the trainer's, computed in float32 under the snapshot that the label of the
token names, and under the snapshot before that one (median / p99).

{truth_table(runs)}
![Times and differences](times.png)
"""
    if any("baseline" in ways for ways in runs.values()):
        text += f"""
## Beside a loop without it

The baseline has the same agent, problems, loss, engines and kill: round robin without sessions, text in and out, tokenised again by the trainer, which pauses the
engines for its updates. Seeds are separated by a dot.

{comparison_table(runs)}"""
    if experts.exists():
        verdicts_of_experts, section = routed_experts(experts)
        found += verdicts_of_experts
        text += section
    (folder / "report.md").write_text(text)
    for holds, line in found:
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {line}")
    print(f"the report is {folder / 'report.md'}")
    return 0 if all(holds for holds, _ in found) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
