"""Makes tiny models with random weights, so that real engines can be driven without downloading any.

usage: python tiny_model.py FOLDER, which gets
    dense      Qwen3, about 1 M parameters
    dense_v2   the same architecture with other weights: another policy version of it
    moe        Qwen3-MoE, 8 experts of which 2 are active
The same script makes the same weights under one version of torch. Needs torch, transformers and tokenizers.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Merges come from here, the rest of the vocabulary is the 256 bytes: a random model then also says half of a UTF-8
# character, which is what a byte-level tokenizer does to a stream.
TEXT = """
A turnout sends a train from one track to another without stopping it, and a router does the same with requests.
Every rollout asks for the next tokens of a trajectory; the engine that holds its cache answers fastest.
One two three four five six seven eight nine ten. What is seven times six? Seven times six is forty-two.
{"role": "user", "content": "Which way?"} {"role": "assistant", "content": "Left, then straight on."}
for step in range(10): loss = update(policy, rollouts)
""".strip().split("\n")


def make_tokenizer() -> PreTrainedTokenizerFast:
    bytewise = Tokenizer(models.BPE())
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    bytewise.train_from_iterator(
        TEXT,
        trainers.BpeTrainer(
            vocab_size=512,
            special_tokens=SPECIAL_TOKENS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bytewise,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=8192,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def save(model, tokenizer: PreTrainedTokenizerFast, folder: Path, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() < 2:
                continue  # norms stay 1
            # Wide enough that every token changes what comes next: with the usual 0.02 a random model says one word
            # over and over, and an answer with a token lost or doubled would look right.
            width = 0.5 if "embed" in name else 1.5 if "lm_head" in name else 0.2
            weights.copy_(torch.randn(weights.shape, generator=random) * width)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    (folder / "generation_config.json").write_text(json.dumps(ends))


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    shape = {
        "vocab_size": len(tokenizer),  # so that every id decodes
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "dtype": "float32",
    }
    experts = {
        "moe_intermediate_size": 128,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
    save(Qwen3ForCausalLM(Qwen3Config(**shape)), tokenizer, folder / "dense", seed=1)
    save(Qwen3ForCausalLM(Qwen3Config(**shape)), tokenizer, folder / "dense_v2", seed=2)
    save(Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape, **experts)), tokenizer, folder / "moe", seed=1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
