"""Trains a small checkpoint with transformers.

    python -m engine.checkpoints.train --kind dense --out engine/checkpoints/dense
    python -m engine.checkpoints.train --kind moe --out engine/checkpoints/moe

A few minutes each on one GPU; at most 10 MB. The same seed on the same machine gives the same text.
"""

from __future__ import annotations

import argparse
import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from .corpus import PROMPTS, sentences

VOCAB, LENGTH, BATCH = 512, 128, 64
END = "<end>"
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    "max_position_embeddings": 2048, "eos_token_id": 0, "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                        "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1]},
}  # fmt: skip
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "dense": (
        transformers.Qwen3_5TextConfig, transformers.Qwen3_5ForCausalLM,
        {"intermediate_size": 384},
    ),
    "moe": (
        transformers.Qwen3_5MoeTextConfig, transformers.Qwen3_5MoeForCausalLM,
        {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
         "shared_expert_intermediate_size": 96},
    ),
}  # fmt: skip


def train_tokenizer(seed: int) -> Tokenizer:
    """Byte-level pairs; id 0 is the end of a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(islice(sentences(seed), 20_000), trainer)
    return tokenizer


def token_stream(tokenizer: Tokenizer, seed: int, tokens: int) -> Tensor:
    """Texts of three sentences, each ended by id 0, as one int64 vector."""
    ids: list[int] = []
    source = sentences(seed)
    while len(ids) < tokens:
        ids += [*tokenizer.encode(" ".join(islice(source, 3))).ids, 0]
    return torch.tensor(ids[:tokens])


def train(model: Any, stream: Tensor, steps: int, device: str) -> float:
    """The loss of the last step, in nats per token."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    draw = torch.Generator().manual_seed(0)
    offsets, started, loss = torch.arange(LENGTH + 1), time.monotonic(), torch.zeros(())
    for step in range(steps):
        starts = torch.randint(len(stream) - LENGTH, (BATCH, 1), generator=draw)
        batch = stream[starts + offsets].to(device)
        logits = model(batch[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}: {loss.item():.3f} nats, {time.monotonic() - started:.0f} s")
    return loss.item()


@torch.no_grad()
def show(model: Any, tokenizer: Tokenizer, device: str) -> None:
    """Greedy continuations of a few prompts."""
    for prompt in PROMPTS[:6]:
        ids = torch.tensor([tokenizer.encode(prompt).ids], device=device)
        output = model.generate(ids, max_new_tokens=24, do_sample=False, pad_token_id=0)
        print(tokenizer.decode(output[0].tolist()))


def main() -> None:
    parser = argparse.ArgumentParser("engine.checkpoints.train", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    config_class, model_class, sizes = KINDS[options.kind]
    tokenizer = train_tokenizer(options.seed)
    stream = token_stream(tokenizer, options.seed, 1_000_000)
    model = model_class(config_class(**SIZES, **sizes)).to(options.device)
    loss = train(model, stream, options.steps, options.device)
    model.eval()
    show(model, tokenizer, options.device)
    model.save_pretrained(options.out)
    tokenizer.save(str(options.out / "tokenizer.json"))
    size = (options.out / "model.safetensors").stat().st_size
    print(f"{options.out}: {loss:.3f} nats, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
