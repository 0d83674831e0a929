"""Routed experts: python experts.py ROUTER MODEL GROUPS replays in the trainer's forward pass what the engine chose. One line of JSON.

The engine returns for each token the experts that each layer used, the feed delivers them with the tokens. Needs a Qwen3-MoE.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from collect import collect
from turnout.feed import Feed, Row


class Replay:
    """The routers of a model's layers: records the experts that they choose, and uses given ones in their place."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.chosen: list[torch.Tensor] = []
        self._given: torch.Tensor | None = None
        for index, layer in enumerate(model.model.layers):
            layer.mlp.gate.register_forward_hook(lambda _, __, output, index=index: self._route(index, *output))

    def _route(
        self, layer: int, logits: torch.Tensor, weights: torch.Tensor, experts: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        self.chosen.append(experts)
        if self._given is None:
            return logits, weights, experts
        given = self._given[:, layer]
        # As the model weighs its own choice (norm_topk_prob): the given ones' part of the probability, together 1.
        likely = logits.softmax(-1).gather(1, given)
        return logits, likely / likely.sum(-1, keepdim=True), given

    def logprobs(self, tokens: torch.Tensor, given: torch.Tensor | None) -> torch.Tensor:
        """[N - 1] of each token but the first. `given`: [N - 1, layers, experts per token]."""
        self.chosen, self._given = [], given
        return self.model(tokens[None, :-1]).logits[0].log_softmax(-1).gather(1, tokens[1:, None])[:, 0]


def measure(row: Row, replay: Replay) -> dict[str, Any]:
    assert row.routed_experts is not None, f"no routed experts of {row.session}"
    tokens, mask = torch.as_tensor(row.tokens).long(), torch.as_tensor(row.loss_mask)[1:] == 1
    given = torch.as_tensor(row.routed_experts.astype("int64"))
    delivered = torch.as_tensor(row.logprobs)[1:]
    own = (replay.logprobs(tokens, None) - delivered).abs()
    chosen = torch.stack(replay.chosen, 1)
    same = (chosen.sort(-1).values == given.sort(-1).values).all(-1)  # the order of experts has no meaning
    replayed = (replay.logprobs(tokens, given) - delivered).abs()
    return {
        "places": same.numel(),
        "same": int(same.sum()),
        "own": own[mask].tolist(),
        "replayed": replayed[mask].tolist(),
    }


@torch.no_grad()
def main(url: str, model: Path, wanted: int) -> None:
    torch.set_num_threads(1)
    replay = Replay(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval())
    with Feed(url, consumer="experts", format="ndjson") as feed:
        groups = collect(feed, wanted)
        feed.ack(*groups)
    measured = [measure(row, replay) for group in groups for row in group.rows]
    sums = {name: sum(each[name] for each in measured) for name in ("places", "same")}
    lists = {name: [round(value, 7) for each in measured for value in each[name]] for name in ("own", "replayed")}
    print(json.dumps({**sums, **lists}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
