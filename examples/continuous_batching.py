"""Hugging Face transformers' asynchronous continuous batching, unmodified, on a small random model.

``generate_batch`` runs a generation thread that drives three streams, three events per buffer pair
and pinned double buffers; with CUDA graphs it captures the forward pass into a private pool.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, Qwen3Config, Qwen3ForCausalLM
from transformers.generation.continuous_batching.input_outputs import ContinuousBatchingIOs

PROMPTS = [[5, 6, 7, 8], [11, 12, 13], [20, 21, 22, 23, 24, 25]]
NEW_TOKENS = 8


def model() -> Qwen3ForCausalLM:
    """Two layers, random weights, always the same."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=256,
        tie_word_embeddings=False,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).eval()


def _generate(use_cuda_graph: bool) -> list[list[int]]:
    outputs = model().to("cuda").generate_batch(
        inputs=PROMPTS,
        generation_config=GenerationConfig(
            max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=96, pad_token_id=0
        ),
        continuous_batching_config=ContinuousBatchingConfig(
            use_async_batching=True, use_cuda_graph=use_cuda_graph, max_batch_tokens=64,
            num_blocks=32,
        ),
        progress_bar=False,
    )  # fmt: skip
    return [outputs[key].generated_tokens for key in sorted(outputs)]


@contextmanager
def _joined_reset() -> Iterator[None]:
    """Adds the edge that the library lacks.

    A full reset fills the static input tensors on the default stream; the first copies into them
    are issued on another stream, and nothing makes that stream wait for the fills.
    """
    reset = ContinuousBatchingIOs._reset_static_tensors

    def reset_and_join(self: ContinuousBatchingIOs, full_reset: bool = False) -> None:
        reset(self, full_reset)
        if full_reset:
            torch.cuda.current_stream().synchronize()

    ContinuousBatchingIOs._reset_static_tensors = reset_and_join
    try:
        yield
    finally:
        ContinuousBatchingIOs._reset_static_tensors = reset


def eager() -> list[list[int]]:
    """The new tokens of each prompt, CUDA graphs off."""
    return _generate(use_cuda_graph=False)


def graphs() -> list[list[int]]:
    """The same with CUDA graphs."""
    return _generate(use_cuda_graph=True)


def eager_joined() -> list[list[int]]:
    """CUDA graphs off, with the missing edge."""
    with _joined_reset():
        return _generate(use_cuda_graph=False)


def graphs_joined() -> list[list[int]]:
    """CUDA graphs on, with the missing edge."""
    with _joined_reset():
        return _generate(use_cuda_graph=True)


def plain() -> list[list[int]]:
    """The right output: ``model.generate`` on the CPU, one prompt at a time."""
    cpu = model()
    return [
        cpu.generate(
            torch.tensor([prompt]), max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=96,
            pad_token_id=0,
        )[0, len(prompt) :].tolist()
        for prompt in PROMPTS
    ]  # fmt: skip
