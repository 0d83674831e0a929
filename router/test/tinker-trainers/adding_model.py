"""Makes a tiny Qwen3 that answers "What is 4 + 5?" with a number, mostly a wrong one: what reinforcement learning can improve.

usage: python adding_model.py FOLDER
Needs torch, transformers and tokenizers. Takes half a minute on one core.
"""

import json
import random
import sys
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

sys.path.insert(0, str(Path(__file__).parent.parent / "real"))
from tiny_model import make_tokenizer

STEPS = 150
BATCH = 64
LENGTH = 96
IGNORED = -100


def main(folder: Path) -> None:
    torch.manual_seed(1)
    random.seed(1)
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model = Qwen3ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def example() -> tuple[list[int], list[int]]:
        x, y = random.randint(0, 100), random.randint(0, 100)
        asked = [
            {"role": "user", "content": "What is 4 + 5?"},
            {"role": "assistant", "content": "9"},
            {"role": "user", "content": f"What is {x} + {y}?"},
        ]
        prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
        ids = tokenizer.encode(prompt)
        answer = tokenizer.encode(f"{x + y}<|im_end|>")
        padding = LENGTH - len(ids) - len(answer)
        assert padding >= 0, len(ids)
        return ids + answer + [tokenizer.pad_token_id] * padding, [IGNORED] * len(ids) + answer + [IGNORED] * padding

    for step in range(STEPS):
        ids, labels = (torch.tensor(column) for column in zip(*(example() for _ in range(BATCH)), strict=True))
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 25 == 0 or step == STEPS - 1:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # For trainers that have transformers 4.
    add(folder / "config.json", rope_theta=config.rope_parameters["rope_theta"], torch_dtype="float32")
    add(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")


def add(path: Path, **fields: str | float) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}, indent=2))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
