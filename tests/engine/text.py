"""A tokenizer for tiny models: bytes, and a few merges of them."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.engine.tiny import write_checkpoint

VOCAB = 288
CORPUS = ["the capital of France is Paris, and the capital of Japan is Tokyo", "äöü 日本"]


def write_text_checkpoint(directory: Path, kind: str = "dense") -> Path:
    """A random model with a tokenizer.json."""
    write_checkpoint(directory, kind, vocab_size=VOCAB)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory
