"""What is wrong with the input is said in one line, and other requests do not notice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from engine import LLM, CheckpointError, ConfigError, Faults, Flags, RequestError
from engine.core import EngineCore
from engine.request import Request
from tests.engine.harness import config, params, run
from tests.engine.tiny import write_checkpoint


def edit(**changes: Any) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        path = directory / "config.json"
        values = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))

    return change


def without_tensor(directory: Path) -> None:
    path = directory / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.norm.weight"]
    save_file(tensors, path)


def truncated(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def without_shard(directory: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


CHECKPOINTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "another architecture": (edit(model_type="llama"), "model_type is 'llama'; the engine runs"),
    "a missing key": (edit(head_dim=None), "has no 'head_dim'"),
    "not JSON": (lambda d: (d / "config.json").write_text("{"), "cannot be read as JSON"),
    "no config": (lambda d: (d / "config.json").unlink(), "config.json does not exist"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), "safetensors cannot be read"),
    "a missing tensor": (without_tensor, "has no tensor model.norm.weight"),
    "a truncated tensor": (truncated, "model.safetensors cannot be read"),
    "a missing shard": (without_shard, "model-00001-of-00002.safetensors cannot be read"),
    "another shape": (edit(intermediate_size=25), r"has shape \[24, 16\], not \[25, 16\]"),
    "an unknown dtype": (edit(dtype="float16"), "dtype 'float16' is not one of"),
    "quantized": (edit(quantization_config={}), "does not implement this quantization_config"),
    "other positions": (
        edit(rope_parameters={"rope_type": "yarn"}), "does not implement this rope_type",
    ),
    "heads that do not divide": (edit(num_key_value_heads=3), "2 heads cannot share 3 heads"),
    "an unknown layer": (edit(layer_types=["mamba"]), r"layer_types has \['mamba'\]"),
}  # fmt: skip


@pytest.mark.parametrize("what", CHECKPOINTS)
def test_a_checkpoint_that_cannot_be_run(what: str, tmp_path: Path) -> None:
    spoil, message = CHECKPOINTS[what]
    spoil(write_checkpoint(tmp_path))
    with pytest.raises(CheckpointError, match=message) as caught:
        EngineCore(config(tmp_path))
    assert "\n" not in str(caught.value)


REQUESTS: dict[str, tuple[tuple[int, ...], str]] = {
    "no tokens": ((), "the prompt has no tokens"),
    "longer than the context": ((1,) * 128, "128 tokens leaves no room in a context of 128"),
    "an unknown token": ((1, 64), "token id 64 is outside the vocabulary of 64"),
    "a negative token": ((1, -1), "token id -1 is outside the vocabulary of 64"),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_a_request_that_cannot_run(what: str, dense: Path) -> None:
    ids, message = REQUESTS[what]
    good = (3, 4, 5)
    core = EngineCore(config(dense))
    request = Request("good", good, params(9))
    core.add(request)
    core.step()
    with pytest.raises(RequestError, match=message):
        core.add(Request("bad", ids, params(9)))
    while core.has_work():
        core.step()
    assert [request.output_ids] == run(config(dense), [good], params(9)).tokens


def test_an_id_in_use(dense: Path) -> None:
    core = EngineCore(config(dense))
    core.add(Request("a", (1,), params(3)))
    with pytest.raises(RequestError, match="request a: this id is in use"):
        core.add(Request("a", (2,), params(3)))


def test_more_requests_than_may_wait(dense: Path) -> None:
    core = EngineCore(config(dense, max_num_seqs=1, max_waiting=2))
    core.add(Request("0", (1,), params(3)))
    core.step()
    core.add(Request("1", (1,), params(3)))
    core.add(Request("2", (1,), params(3)))
    with pytest.raises(RequestError, match="request 3: 2 requests wait already"):
        core.add(Request("3", (1,), params(3)))


def test_one_bad_prompt_of_a_list_runs_none_and_spoils_nothing(dense: Path) -> None:
    with LLM(config(dense)) as llm:
        with pytest.raises(RequestError, match="token id 99"):
            llm.generate([[1, 2], [99]], params(4))
        assert not llm.core.has_work()
        assert len(llm.generate([[1, 2]], params(4))[0].ids) == 4
        with pytest.raises(RequestError, match="2 prompts but 1 sampling parameters"):
            llm.generate([[1], [2]], [params(4)])
        with pytest.raises(RequestError, match="text or a sequence of token ids"):
            llm.generate([[1.5]], params(4))  # type: ignore[list-item]
        with pytest.raises(CheckpointError, match=r"tokenizer.json does not exist"):
            llm.generate(["text"], params(4))
        with pytest.raises(RequestError, match=r"stop strings need a tokenizer\.json"):
            llm.generate([[1]], params(4, stop=("x",)))


CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "zero length": ({"max_model_len": 0}, "max_model_len is 0; it must be at least 1"),
    "negative depth": ({"depth": -1}, "depth is -1; it must be at least 1"),
    "too few pages": ({"num_blocks": 3}, "max_model_len 128 needs 32 blocks"),
    "too few tokens a step": ({"max_num_batched_tokens": 7}, "must be at least max_num_seqs"),
    "another device": ({"device": "meta"}, "the engine runs on cpu and cuda"),
    "depth on the CPU": ({"depth": 2}, "depth above 1 needs device cuda"),
    "graphs on the CPU": ({"graphs": True}, "graphs need device cuda"),
    "executor on the CPU": ({"flags": Flags(executor=True)}, "needs device cuda and graphs"),
    "depth without sched": (
        {"device": "cuda", "depth": 2, "flags": Flags(sched=False)}, "needs VT_ASYNC_SCHED=1",
    ),
    "executor without mirror": (
        {"device": "cuda", "flags": Flags(executor=True, device_mirror=False)},
        "VT_ASYNC_EXECUTOR=1 needs VT_ASYNC_DEVICE_MIRROR=1",
    ),
    "ring without executor": ({"device": "cuda", "ring": 2}, "ring above 1 needs VT_ASYNC_EXEC"),
    "poison without executor": (
        {"device": "cuda", "flags": Flags(executor_poison=True)}, "POISON=1 needs VT_ASYNC_EXECUT",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CONFIGS)
def test_settings_that_do_not_fit_together(what: str, dense: Path) -> None:
    changes, message = CONFIGS[what]
    with pytest.raises(ConfigError, match=message):
        config(dense, **changes)


def test_more_context_than_the_model_has(dense: Path) -> None:
    with pytest.raises(ConfigError, match="max_model_len is 600; the model has 512 positions"):
        EngineCore(config(dense, max_model_len=600, num_blocks=200))


@pytest.mark.parametrize("value", ["2", "", "true"])
def test_an_unknown_flag_value(value: str) -> None:
    with pytest.raises(ConfigError, match=f"VT_ASYNC_EXECUTOR={value!r}; it must be 0 or 1"):
        Flags.from_environment({"VT_ASYNC_EXECUTOR": value})


def test_an_unknown_flag_and_an_unknown_fault() -> None:
    with pytest.raises(ConfigError, match="VT_ASYNC_EXECUTER is not a flag; the flags are VT_"):
        Flags.from_environment({"VT_ASYNC_EXECUTER": "1"})
    with pytest.raises(ConfigError, match="no fault point E99; the points are E01"):
        Faults("E99")


def test_flags_come_from_the_environment_once_and_are_printed(
    dense: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VT_ASYNC_SCHED", "0")
    settings = config(dense, flags=Flags.from_environment())
    monkeypatch.setenv("VT_ASYNC_SCHED", "1")
    EngineCore(settings)
    assert "depth=1 ring=1 graphs=0 VT_ASYNC_SCHED=0 VT_ASYNC_DEVICE" in capsys.readouterr().err


def test_the_command_line_says_it_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "engine", "generate", "--model", str(tmp_path)]
    ended = subprocess.run([*command, "--prompt", "x"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == f"engine: error: {tmp_path}/config.json does not exist\n"
