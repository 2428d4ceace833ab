"""``python -m engine generate --model DIR --prompt TEXT``: streams the text."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import torch

from . import AsyncLLM, EngineConfig, EngineError, SamplingParams


def main(arguments: list[str] | None = None) -> int:
    """0, or 2 with one line on standard error if something in the input is wrong."""
    parser = argparse.ArgumentParser("engine", description=__doc__)
    generate = parser.add_subparsers(required=True).add_parser("generate", help="complete a prompt")
    generate.add_argument("--model", type=Path, required=True, help="a directory with config.json")
    generate.add_argument("--prompt", action="append", required=True, help="may be given again")
    generate.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    generate.add_argument("--max-model-len", type=int, default=512, help="prompt and output")
    generate.add_argument("--max-tokens", type=int, default=64)
    generate.add_argument("--temperature", type=float, default=0.0, help="0: greedy")
    generate.add_argument("--top-k", type=int, default=0)
    generate.add_argument("--top-p", type=float, default=1.0)
    generate.add_argument("--seed", type=int, default=0)
    generate.add_argument("--stop", action="append", default=[], help="may be given again")
    generate.add_argument("--ignore-eos", action="store_true")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(_generate(options))
    except EngineError as error:
        print(f"engine: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


async def _generate(options: argparse.Namespace) -> None:
    params = SamplingParams(
        max_tokens=options.max_tokens, temperature=options.temperature, top_k=options.top_k,
        top_p=options.top_p, seed=options.seed, stop=tuple(options.stop),
        ignore_eos=options.ignore_eos,
    )  # fmt: skip
    config = EngineConfig(
        options.model, device=options.device, max_model_len=options.max_model_len
    )
    async with AsyncLLM(config) as llm:
        texts = [_print_first(llm, options.prompt[0], params)]
        texts += [_collect(llm, prompt, params) for prompt in options.prompt[1:]]
        _, *others = await asyncio.gather(*texts)
        for prompt, text in zip(options.prompt[1:], others, strict=True):
            print(prompt + text)


async def _print_first(llm: AsyncLLM, prompt: str, params: SamplingParams) -> str:
    """Streams the first prompt; the others run beside it and are shown when all are done."""
    print(prompt, end="", flush=True)
    async for chunk in llm.generate(prompt, params):
        print(chunk.text, end="", flush=True)
    print()
    return ""


async def _collect(llm: AsyncLLM, prompt: str, params: SamplingParams) -> str:
    return "".join([chunk.text async for chunk in llm.generate(prompt, params)])


if __name__ == "__main__":
    sys.exit(main())
