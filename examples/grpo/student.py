"""The model that is trained: python student.py FOLDER [STEPS] makes its tokenizer and template and teaches it by demonstrations.

Qwen3 with 2 layers, 1 M parameters, in float32. The byte-level tokenizer has merges of several digits and of `×` and `−` (two and three
bytes), so that one text has several token sequences. Needs torch, transformers and tokenizers.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from task import demonstration

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# The agent reads tool calls from the text. A client that has the engine parse them gets the same tokens.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] %}{{ message['content'] }}{% endif %}"
    "{% for call in message['tool_calls'] or [] %}<tool_call>{{ call['function']['arguments'] }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TURN = "<|im_start|>assistant\n"
END = "<|im_end|>"


def make_tokenizer(conversations: list[list[dict[str, str]]]) -> PreTrainedTokenizerFast:
    bytewise = Tokenizer(models.BPE())
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    bytewise.train_from_iterator(
        (message["content"] for messages in conversations for message in messages),
        trainers.BpeTrainer(
            vocab_size=336,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bytewise,
        eos_token=END,
        pad_token="<|endoftext|>",
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=192,
            intermediate_size=512,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=2048,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            dtype="float32",
        )
    )


def render(tokenizer: PreTrainedTokenizerFast, messages: list[dict[str, str]]) -> tuple[list[int], list[bool]]:
    """Token ids of a conversation, and which of them the assistant writes."""
    ids: list[int] = []
    written: list[bool] = []
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    for i, part in enumerate(text.split(TURN)):
        own, _, rest = part.partition(END) if i > 0 else ("", "", part)
        pieces = [(TURN, False), (own + END, True)] if i > 0 else []
        for piece, is_written in [*pieces, (rest, False)]:
            new = tokenizer.encode(piece, add_special_tokens=False)
            ids += new
            written += [is_written] * len(new)
    return ids, written


def teach(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, steps: int, rng: random.Random) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.1)
    pad = tokenizer.pad_token_id
    for step in range(1, steps + 1):
        batch = [render(tokenizer, demonstration(rng)) for _ in range(16)]
        longest = max(len(ids) for ids, _ in batch)
        ids = torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in batch])
        written = torch.tensor([written + [False] * (longest - len(written)) for _, written in batch])
        logits = model(ids[:, :-1]).logits
        each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        loss = each[written[:, 1:]].mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == steps:
            print(f"student: step {step} of {steps}, loss {loss.item():.3f}", flush=True)


def save(model: PreTrainedModel, folder: Path) -> None:
    """The weights as engines load them; the folder appears only when it is complete."""
    new = folder.with_name(folder.name + ".new")
    model.save_pretrained(new)
    new.rename(folder)


def main(folder: Path, steps: int) -> None:
    rng = random.Random(1)
    torch.manual_seed(1)
    torch.set_num_threads(1)  # for matrices of this size more threads mostly wait for each other
    tokenizer = make_tokenizer([demonstration(rng) for _ in range(4000)])
    model = make_model(tokenizer)
    size = sum(each.numel() for each in model.parameters())
    print(f"student: {size:,} parameters, {len(tokenizer)} tokens, {steps} steps", flush=True)
    teach(model, tokenizer, steps, rng)
    tokenizer.save_pretrained(folder.with_name(folder.name + ".new"))
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    (folder.with_name(folder.name + ".new") / "generation_config.json").write_text(json.dumps(ends))
    save(model, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 500)
