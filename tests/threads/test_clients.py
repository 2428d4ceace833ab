"""Third-party programs whose background threads come under control."""

from __future__ import annotations

import queue
import threading
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.child import in_child
from tests.threads.log import Log, watched


def batching_service(log: Log) -> list[Any]:
    """A generation thread: queues with time-outs, a wake-up event, a condition that pauses."""
    requests: queue.Queue[int] = queue.Queue(maxsize=2)
    results: queue.Queue[tuple[int, int]] = queue.Queue()
    wake_up = threading.Event()
    status = threading.Condition()
    state = {"stop": False, "pause": False, "paused": False}

    def generate() -> None:
        while True:
            with status:
                if state["stop"] and requests.empty():
                    return
                if state["pause"]:
                    state["paused"] = True
                    status.notify_all()
                    status.wait_for(lambda: not state["pause"])
                    state["paused"] = False
            try:
                request = requests.get_nowait()
            except queue.Empty:
                wake_up.wait(timeout=0.1)
                wake_up.clear()
                continue
            log.step(("generate", request))
            results.put((request, request * request))

    thread = threading.Thread(target=generate)
    thread.start()
    answers: list[Any] = []
    for request in range(5):
        requests.put(request, timeout=10)
        wake_up.set()
    while len(answers) < 5 and thread.is_alive():
        try:
            answers.append(results.get(timeout=0.1))
        except queue.Empty:
            continue
    with status:
        state["pause"] = True
        wake_up.set()
        assert status.wait_for(lambda: state["paused"], timeout=60)
        log.step("paused")
        state["pause"] = False
        status.notify_all()
    with status:
        state["stop"] = True
    thread.join(timeout=60)
    return [*answers, thread.is_alive()]


def test_a_batching_service() -> None:
    first, answers = watched(batching_service)
    assert answers == [(0, 0), (1, 1), (2, 4), (3, 9), (4, 16), False]
    for _ in range(20):
        assert watched(batching_service)[0].events == first.events


class _Steps(TorchDispatchMode):
    """Every operator is a step, as it is on the virtual GPU."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._log.step(str(func))
        return func(*args, **(kwargs or {}))


def continuous_batching() -> tuple[list[Any], dict[str, list[int]]]:
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM
    from transformers.generation import ContinuousBatchingConfig

    torch.set_num_threads(1)
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8}
    config = Qwen3Config(vocab_size=97, num_attention_heads=4, num_key_value_heads=2, **size)
    model = Qwen3ForCausalLM(config).eval()

    def program(log: Log) -> dict[str, list[int]]:
        local = threading.local()

        def dispatch() -> None:
            local.mode = _Steps(log)
            local.mode.__enter__()

        assert log.control is not None
        log.control.on_thread(dispatch)
        outputs = model.generate_batch(
            [[1, 2, 3], [4, 5, 6, 7], [8, 9]],
            generation_config=GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=-1),
            continuous_batching_config=ContinuousBatchingConfig(
                num_blocks=16, max_batch_tokens=32, page_size=16
            ),
            progress_bar=False,
        )
        return {name: output.generated_tokens for name, output in outputs.items()}

    watched(program, seconds=60)  # warms up, as a recording does
    log, tokens = watched(program, seconds=60)
    return log.events, tokens


def test_transformers_continuous_batching_ends_and_repeats() -> None:
    def body() -> tuple[int, bool, dict[str, list[int]]]:
        first, tokens = continuous_batching()
        second, _ = continuous_batching()
        return len(first), first == second, tokens

    steps, same, tokens = in_child(body)
    assert steps > 500 and same
    assert [len(each) for each in tokens.values()] == [4, 4, 4]
