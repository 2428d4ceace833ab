"""Text in, text out: streaming, characters of several tokens, stop strings, the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine import LLM, CheckpointError, FinishReason, SamplingParams
from engine.tokenizer import TextStream, Tokenizer
from tests.engine.harness import config, params
from tests.engine.text import write_text_checkpoint

PROMPT = "The capital of France is Paris, and the"
WRITTEN = "naïve 日本語 🙂 end, and the capital"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text_checkpoint(tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_pieces_add_up_and_no_character_is_split(directory: Path, size: int) -> None:
    tokenizer = Tokenizer(directory)
    ids = tokenizer.encode(WRITTEN)
    assert len(ids) > len(WRITTEN) // 2
    stream = TextStream(tokenizer)
    pieces = [
        stream.push(tuple(ids[at : at + size]), final=at + size >= len(ids))
        for at in range(0, len(ids), size)
    ]
    assert "".join(pieces) == WRITTEN
    assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("stop", [("日本",), ("zzz", "🙂"), ("end, and",)], ids=str)
def test_the_text_ends_before_a_stop_string(directory: Path, stop: tuple[str, ...]) -> None:
    tokenizer = Tokenizer(directory)
    stream, shown = TextStream(tokenizer, stop), ""
    for token in tokenizer.encode(WRITTEN):
        shown += stream.push((token,), final=False)
        assert WRITTEN.startswith(shown)
        if stream.stopped:
            break
    assert shown == WRITTEN[: WRITTEN.index(stop[-1])]


def test_what_is_held_back_for_a_stop_string_comes_at_the_end(directory: Path) -> None:
    tokenizer = Tokenizer(directory)
    stream, ids = TextStream(tokenizer, ("capital!",)), tokenizer.encode(WRITTEN)
    shown = "".join(stream.push((token,), final=False) for token in ids)
    assert shown == WRITTEN[: -len("capital")]
    assert shown + stream.push((), final=True) == WRITTEN


def test_a_stop_string_ends_the_request(directory: Path) -> None:
    with LLM(config(directory)) as llm:
        (free,) = llm.generate([PROMPT], params(40))
        stop = free.text[10:13]
        (stopped,) = llm.generate([PROMPT], params(40, stop=(stop,)))
        assert not llm.core.has_work()
    assert stopped.text == free.text[: free.text.index(stop)]
    assert stopped.finish_reason is FinishReason.STOP
    assert len(stopped.ids) < len(free.ids)


def test_a_file_that_is_no_tokenizer(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer.json is not a tokenizer"):
        Tokenizer(tmp_path)


def test_the_command_line_prints_what_the_library_gives(directory: Path) -> None:
    with LLM(config(directory)) as llm:
        sampling = SamplingParams(max_tokens=12, ignore_eos=True)
        texts = [c.text for c in llm.generate([PROMPT, "Tokyo"], sampling)]
    command = [
        sys.executable, "-m", "engine", "generate", "--model", str(directory), "--device", "cpu",
        "--prompt", PROMPT, "--prompt", "Tokyo", "--max-tokens", "12", "--ignore-eos",
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == f"{PROMPT}{texts[0]}\nTokyo{texts[1]}\n"
    assert ended.stderr.startswith("engine: cpu depth=1")
