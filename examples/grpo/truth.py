"""Are the delivered tokens what the engines sampled, with the weights that their labels name?

For every sampled token its logprob is computed again, under the snapshot of its label and under the one before that. A turn that a swap
cut in two has its second part computed as the engine did: with the keys and values that the old weights had left in the KV cache, or,
where the turn continued on another engine, with all of them computed anew. The token at the cut may have no label; if it is the first one,
part of the prompt may be from the old weights. The reading that fits the whole turn best counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel, PreTrainedTokenizerFast

from turnout.feed import Group

BLOCK = 32  # tokens of a block of the KV cache
KEPT = 6  # snapshots in memory; the feed delivers none that are older than two


class Snapshots:
    """The weights by their label; what no step has made is what the engines started with."""

    def __init__(self, base: Path, folder: Path) -> None:
        self._base, self._folder = base, folder
        self._models: dict[int, PreTrainedModel] = {}

    def step(self, label: str) -> int:
        found = re.fullmatch(r"step-(\d+)", label)
        return int(found[1]) if found else 0

    def model(self, step: int) -> PreTrainedModel:
        if step not in self._models:
            path = self._folder / f"step-{step}" if step > 0 else self._base
            self._models[step] = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
            for old in sorted(self._models)[:-KEPT]:
                del self._models[old]
        return self._models[step]


class Computed:
    """Logprobs of a trajectory's tokens, computed by the trainer."""

    def __init__(self, tokens: torch.Tensor, whole: dict[int, torch.Tensor], snapshots: Snapshots) -> None:
        self._tokens, self._snapshots = tokens, snapshots
        self.whole = whole  # by snapshot: [N] under it alone; 0 for the first token

    def as_sampled(self, first: int, labels: list[int], keeps_cache: bool = True, cached: int = 0) -> torch.Tensor:
        """Of the tokens from `first` on, each under its label, as the engine computed them. With `keeps_cache` the KV cache of older weights
        stays. `cached`: so many tokens of the prompt were in the cache, by the weights before."""
        if len(set(labels)) == 1 and cached == 0:
            return self.whole[labels[0]][first : first + len(labels)]
        found: list[torch.Tensor] = []
        cache, inputs, begin = DynamicCache(), cached, first
        if cached > 0:
            self._snapshots.model(labels[0] - 1)(self._tokens[None, :cached], past_key_values=cache, use_cache=True)
        for label, same in groupby(labels):
            if not keeps_cache:
                cache, inputs = DynamicCache(), 0
            end = begin + len(list(same))
            found.append(self._after(self._snapshots.model(label), inputs, end, cache)[begin - end :])
            # The last token of a segment is an input of the next one.
            inputs, begin = end - 1, end
        return torch.cat(found)

    def _after(self, model: PreTrainedModel, inputs: int, end: int, cache: DynamicCache) -> torch.Tensor:
        """Of the tokens from `inputs` + 1 up to `end`; the cache has those before `inputs`."""
        answer = model(self._tokens[None, inputs : end - 1], past_key_values=cache, use_cache=True)
        return answer.logits[0].log_softmax(-1).gather(1, self._tokens[inputs + 1 : end, None])[:, 0]


def whole(rows: list[torch.Tensor], model: PreTrainedModel) -> list[torch.Tensor]:
    """Of each trajectory [N] its logprobs under one snapshot; 0 for the first token."""
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    found = model(tokens[:, :-1]).logits.log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]
    return [torch.cat([torch.zeros(1), each[: len(row) - 1]]) for row, each in zip(rows, found, strict=True)]


def readings(labels: list[int]) -> list[list[int]]:
    """The labels of a turn without unknown ones (-1): a token that was sampled while the weights changed has the old or the new label."""
    if -1 not in labels:
        return [labels]
    begin = labels.index(-1)
    end = next((i for i in range(begin, len(labels)) if labels[i] >= 0), len(labels))
    before = labels[begin - 1] if begin > 0 else labels[end] - 1 if end < len(labels) else -1
    after = labels[end] if end < len(labels) else before
    if before < 0:
        return []
    return [
        reading
        for cut in range(begin, end + 1)
        for reading in readings([*labels[:begin], *[before] * (cut - begin), *[after] * (end - cut), *labels[end:]])
    ]


@dataclass
class Measured:
    """|Δ logprob| of sampled tokens between the engine and the trainer."""

    own: list[float] = field(default_factory=list)  # under the snapshots of their labels
    neighbour: list[float] = field(default_factory=list)  # under the snapshots before those
    cut: list[float] = field(default_factory=list)  # `own`, in turns that a swap cut in two
    # In those turns: the old part under the new weights, and the reverse.
    cut_swapped: list[float] = field(default_factory=list)
    unknown: int = 0  # tokens without a label: sampled while the weights changed
    cuts: int = 0  # turns with two labels

    def add_turn(self, row: Computed, first: int, labels: list[int], delivered: torch.Tensor) -> None:
        self.unknown += labels.count(-1)
        differences: list[tuple[torch.Tensor, list[int]]] = []
        for reading in readings(labels):
            ways = [{}] if len(set(reading)) == 1 else [{}, {"keeps_cache": False}]
            # A swap before the first token: what the prompt had in the cache may be from the weights before.
            if labels[0] == -1 and reading[0] > 0:
                ways += [{"cached": cached} for cached in range(BLOCK, first, BLOCK)]
            differences += [((row.as_sampled(first, reading, **way) - delivered).abs(), reading) for way in ways]
        if not differences:
            return
        best, steps = min(differences, key=lambda each: float(each[0].max()))
        self.own += best.tolist()

        def under(i: int, step: int) -> float:
            return abs(float(row.whole[step][first + i] - delivered[i]))

        self.neighbour += [under(i, step - 1) for i, step in enumerate(steps) if step - 1 in row.whole]
        if len(set(steps)) > 1:
            self.cuts += 1
            self.cut += best.tolist()
            other = {steps[0]: steps[-1], steps[-1]: steps[0]}
            self.cut_swapped += [under(i, other.get(step, step)) for i, step in enumerate(steps)]


@torch.no_grad()
def measure(groups: list[Group], snapshots: Snapshots, tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The fields of `Measured`, and `delivered`: by session its turns, as text and number of sampled tokens."""
    measured = Measured()
    delivered: dict[str, list[tuple[str, int]]] = {}
    rows = [(row, [*map(snapshots.step, group.version_names), -1]) for group in groups for row in group.rows]
    # Under every snapshot that a label names, and the one before it.
    named = {steps[i] for row, steps in rows for i in np.unique(row.versions).tolist()} - {-1}
    needed = {each for step in named for each in (step, max(0, step - 1))}
    tokens = [torch.as_tensor(row.tokens).long() for row, _ in rows]
    computed = {step: whole(tokens, snapshots.model(step)) for step in sorted(needed)}
    for i, (row, steps) in enumerate(rows):
        one = Computed(tokens[i], {step: each[i] for step, each in computed.items()}, snapshots)
        for turn in row.turns:
            at = [j for j in range(turn["from"], turn["to"]) if row.loss_mask[j] == 1]
            text = tokenizer.decode(row.tokens[at], skip_special_tokens=True)
            delivered.setdefault(row.session, []).append((text, len(at)))
            labels = [steps[j] for j in row.versions[at].tolist()]
            measured.add_turn(one, at[0], labels, torch.as_tensor(row.logprobs)[at])
    rounded = {
        name: [round(each, 7) for each in value] if isinstance(value, list) else value
        for name, value in vars(measured).items()
    }
    return {
        **rounded,
        "delivered": delivered,
        "flags": sorted({flag for group in groups for row in group.rows for flag in row.flags}),
    }
