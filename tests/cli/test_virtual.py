"""The command line and the API with the real virtual GPU: every way in which a subject may end."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import redgreen as package
from tests.cli.conftest import Run

MAIN = """
import random, sys, time
import torch

def pipeline(factor=2):
    side = torch.cuda.Stream()
    host = torch.arange(8, dtype=torch.float32).pin_memory()
    out = torch.zeros(8).pin_memory()
    device = torch.zeros(8, device="cuda")
    ready = torch.cuda.Event()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        device.copy_(host, non_blocking=True)
        ready.record()
    torch.cuda.current_stream().wait_event(ready)
    out.copy_(device * factor, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return out.clone()

def racy():
    side = torch.cuda.Stream()
    host = torch.arange(8, dtype=torch.float32).pin_memory()
    device = torch.zeros(8, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        device.copy_(host, non_blocking=True)
    return device * 2

def clock():
    return (torch.zeros(2, device="cuda", dtype=torch.float64) + time.time()).cpu()

def timed():
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    x = torch.ones(2, device="cuda")
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) >= 0
    return x

def times():
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    x = torch.ones(2, device="cuda")
    end.record()
    end.synchronize()
    return x, begin.elapsed_time(end)

def unseeded():
    x = torch.ones(2, device="cuda")
    for _ in range(random.randrange(1000)):
        x = x + 1
    return x

def raises():
    x = torch.ones(2, device="cuda")
    raise ValueError(f"the reason {x.sum().item()}")

def hangs():
    torch.ones(2, device="cuda")
    while True: pass

def bad_index():
    # Without the wait, the index is garbage: a device operator raises.
    side, ready = torch.cuda.Stream(), torch.cuda.Event()
    table = torch.arange(10.0, device="cuda")
    index = torch.full((4,), 1000, device="cuda")
    good = torch.tensor([1, 2, 3, 9]).pin_memory()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        index.copy_(good, non_blocking=True)
        ready.record()
    ready.wait()
    return table[index].cpu()

def stop_token():
    # Without the sync, the host never sees the token at which it stops.
    seen = torch.zeros(1).pin_memory()
    counter = torch.zeros(1, device="cuda")
    done = torch.cuda.Event()
    steps = 0
    while True:
        counter += 1
        seen.copy_(counter, non_blocking=True)
        done.record()
        done.synchronize()
        steps += 1
        if seen.item() == 3:
            return steps
        seen.fill_(-1)
"""
SCRIPT = "import main, sys\nprint('first')\nprint(main.pipeline())\nprint('third')\n"


@pytest.fixture(autouse=True)
def program(here: Path) -> None:
    (here / "main.py").write_text(MAIN)
    (here / "script.py").write_text(SCRIPT)
    (here / "right.py").write_text(
        "import torch\n"
        "def right(): return torch.arange(8.0) * 2\n"
        "def wrong(): return torch.arange(8.0) * 3\n"
        "def broken(): raise KeyError('in the reference')\n"
    )


def proof(path: str = "out.json") -> Any:
    return json.loads(Path(path).read_text())


def verdicts(found: Any) -> dict[str, str]:
    return {edge["id"]: edge["verdict"] for edge in found["edges"]}


def test_a_proof_and_the_replay_of_every_witness(redgreen: Run) -> None:
    result = redgreen("prove", "main.py:pipeline", "--json", "out.json")
    assert result.status == 0
    assert all(len(line) <= 100 for line in result.out.splitlines())
    found = proof()
    assert found["green"]["verdict"] == "proved" and found["green"]["reference"] is None
    assert set(verdicts(found).values()) == {"load-bearing"} and len(found["edges"]) == 4
    assert all(edge["code"] in result.out for edge in found["edges"])
    for edge in found["edges"]:
        assert edge["witness"] in result.out.replace("\\\n", "")
        again = redgreen("replay", edge["witness"], "main.py:pipeline")
        assert again.status == 0
        fault = f"drop {edge['file']}:{edge['line']} {edge['kind']}"
        assert fault in again.out.replace("\n  ", " ")
        assert re.search(r"difference  output .*: byte \d+ is .. instead of ..", again.out)


def test_a_replay_survives_small_edits_and_notices_the_repair(redgreen: Run, here: Path) -> None:
    redgreen("prove", "main.py:racy", "--json", "out.json")
    (race,) = proof()["green"]["races"]
    assert redgreen("replay", race["witness"], "main.py:racy").status == 0
    (here / "main.py").write_text("# a line more\n" + MAIN)
    assert redgreen("replay", race["witness"], "main.py:racy").status == 0
    last = "    return device * 2\n"
    (here / "main.py").write_text(MAIN.replace(last, f"    side.synchronize()\n{last}"))
    assert redgreen("replay", race["witness"], "main.py:racy").status == 1


def test_a_race_is_refuted_with_the_pair_of_lines(redgreen: Run, here: Path) -> None:
    result = redgreen("prove", "main.py:racy", "--json", "out.json")
    assert result.status == 1
    (race,) = proof()["green"]["races"]
    lines = MAIN.split("def racy")[0].count("\n") + 1
    assert (race["hazard"], race["changes_output"]) == ("RAW", True)
    assert (race["first"]["line"], race["second"]["line"]) == (lines + 6, lines + 7)
    assert "RACES  1" in result.out and race["witness"] in result.out.replace("\\\n", "")


def test_the_output_of_a_script_is_compared(redgreen: Run) -> None:
    assert redgreen("prove", "script.py", "--json", "out.json").status == 0
    found = proof()
    assert found["subject"] == "script.py"
    assert set(verdicts(found).values()) == {"load-bearing"}
    again = redgreen("replay", found["edges"][-1]["witness"], "script.py")
    assert again.status == 0
    assert "difference  standard output, line 2 (stdout): 'tensor([" in again.out or (
        "difference  standard output, line 2: 'tensor([" in again.out
    )


@pytest.mark.parametrize(
    ("reference", "status", "verdict"),
    [("right", 0, "identical"), ("wrong", 1, "different")],
)
def test_a_reference(redgreen: Run, reference: str, status: int, verdict: str) -> None:
    result = redgreen("prove", "main.py:pipeline", "--reference", f"right.py:{reference}",
                      "--json", "out.json")  # fmt: skip
    assert result.status == status
    assert proof()["green"]["reference"] == verdict
    assert proof()["green"]["verdict"] == "proved"


def test_a_reference_that_raises(redgreen: Run) -> None:
    result = redgreen("prove", "main.py:pipeline", "--reference", "right.py:broken")
    assert result.status == 2
    assert "the reference right.py:broken failed" in result.err
    assert "KeyError: 'in the reference'" in result.err


def test_edges_of_other_files_are_not_judged(redgreen: Run) -> None:
    redgreen("prove", "script.py", "--edges", "*/script.py", "--json", "out.json")
    assert proof()["edges"] == [] and proof()["green"]["verdict"] == "proved"


def test_a_subject_that_raises(redgreen: Run) -> None:
    result = redgreen("prove", "main.py:raises")
    assert result.status == 2
    assert "in raises" in result.err and "ValueError: the reason 2.0" in result.err


def test_a_clock(redgreen: Run) -> None:
    result = redgreen("prove", "main.py:clock")
    assert result.status == 3
    assert "two serial runs" in result.out


def test_measured_times_in_the_output(redgreen: Run) -> None:
    result = redgreen("prove", "main.py:times")
    assert result.status == 3
    said = r"different outputs: output\[1\] byte \d; elapsed_time was read at main.py:\d+"
    assert re.search(said, " ".join(result.out.split()))
    assert redgreen("prove", "main.py:timed").status == 0  # read, and not returned


def test_an_unseeded_random_number_and_the_first_step_that_differs(redgreen: Run) -> None:
    result = redgreen("prove", "main.py:unseeded")
    assert result.status == 3
    assert re.search(r"two serial runs differ first at main.py:\d+ aten", result.out)


def test_a_subject_that_never_ends(redgreen: Run) -> None:
    begin = time.monotonic()
    result = redgreen("prove", "main.py:hangs", "--timeout", "1")
    assert result.status == 3
    assert "no result after 1 s" in result.out and "in hangs" in result.out
    assert time.monotonic() - begin < 15


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("bad_index", r"raised .*CUDA error: device-side assert"), ("stop_token", "never ended")],
)
def test_a_fault_may_end_in_an_error_or_not_at_all(
    redgreen: Run, name: str, outcome: str
) -> None:
    assert redgreen("prove", f"main.py:{name}", "--json", "out.json").status == 0
    edges = [e for e in proof()["edges"] if e["kind"] in ("wait_event", "event.synchronize")]
    assert [edge["verdict"] for edge in edges] == ["load-bearing"]
    again = redgreen("replay", edges[0]["witness"], f"main.py:{name}")
    assert again.status == 0
    assert re.search(f"outcome     {outcome}", again.out)


def test_an_operator_that_cannot_run_never_looks_proved(redgreen: Run, here: Path) -> None:
    (here / "main.py").write_text(
        "import torch\n"
        "@torch.library.custom_op('redgreen_test::scale', mutates_args=(), device_types='cpu')\n"
        "def scale(x: torch.Tensor) -> torch.Tensor: return x * 2\n"
        "def loud(): return scale(torch.ones(3, device='cuda'))\n"
        "def swallowed():\n"
        "    x = torch.ones(3, device='cuda')\n"
        "    try: return scale(x)\n"
        "    except Exception: return x\n"
    )
    loud = redgreen("prove", "main.py:loud")
    assert loud.status in (2, 3)
    assert "scale" in loud.out + loud.err
    swallowed = redgreen("prove", "main.py:swallowed")
    assert swallowed.status == 3
    assert "scale" in swallowed.out


def command(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
    environment["PYTHONPATH"] = str(Path(package.__file__).parent.parent)
    return subprocess.Popen([sys.executable, "-m", "redgreen", *arguments], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment, **options)  # fmt: skip


def test_as_a_process_with_another_hash_seed_for_the_replay() -> None:
    (Path.cwd() / "order.py").write_text(
        "import main\ndef run(): return [list({'a', 'b', 'c', 'd'}), main.pipeline()]"
    )
    process = command("prove", "order.py:run", "--json", "out.json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "proved" in out
    token = proof()["edges"][0]["witness"]
    process = command("replay", token, "order.py:run")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out.endswith("\nreproduced\n")) == (0, True), out + err


def test_ctrl_c_prints_what_is_known() -> None:
    (Path.cwd() / "slow.py").write_text(
        "import main, time, subprocess\n"
        "def run():\n"
        "    open('reached', 'a').write('x')\n"
        "    end = time.perf_counter() + 1\n"
        "    x = main.pipeline()\n"
        "    while time.perf_counter() < end: pass\n"
        "    return x\n"
    )
    process = command("prove", "slow.py:run", "--json", "out.json")
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:  # the third run is recorded, then schedules are tried
        if Path("reached").exists() and len(Path("reached").read_text()) >= 4:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "green      inconclusive" in out and "interrupted" in out
    assert "interrupted; the report has what was known by then" in err
    assert "Traceback" not in err
    assert proof()["green"]["verdict"] == "inconclusive"


def late() -> torch.Tensor:
    """A subject that lives in this process."""
    x = torch.ones(4, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 3
    torch.cuda.current_stream().wait_stream(side)
    return y + 1


def test_the_api_proves_a_callable_of_this_process() -> None:
    lines: list[str] = []
    found = package.prove(late, reference=lambda: torch.full((4,), 4.0), progress=lines.append)
    assert isinstance(found, package.Proof)
    document = found.to_dict()
    assert document["subject"] == "test_virtual.py:late"
    assert document["green"]["verdict"] == "proved"
    assert document["green"]["reference"] == "identical"
    assert set(verdicts(document).values()) == {"load-bearing"}
    assert any("runs" in line for line in lines)
    assert not torch.cuda.is_available()


def test_the_api_passes_arguments() -> None:
    def scaled(factor: float) -> torch.Tensor:
        return torch.ones(2, device="cuda") * factor

    found = package.prove(scaled, 3.0, reference=lambda factor: torch.full((2,), factor))
    assert found.green.reference == "identical"


def test_the_api_finds_unseeded_generators_though_a_fork_copies_them() -> None:
    random.seed(0)
    found = package.prove(lambda: torch.ones(1, device="cuda") * random.random())
    assert found.green.verdict == "inconclusive"


def test_the_api_raises_what_the_command_line_prints() -> None:
    def raises() -> None:
        torch.ones(1, device="cuda")
        raise ValueError("the reason")

    with pytest.raises(package.SubjectRaised, match=r"(?s)in raises.*ValueError: the reason"):
        package.prove(raises)
    with pytest.raises(package.UsageError, match="not a function"):
        package.prove(3)  # type: ignore[arg-type]
    with pytest.raises(package.UsageError, match="takes"):
        package.prove(raises, 1)
    with pytest.raises(package.UsageError, match="device 'tpu'"):
        package.prove(raises, device="tpu")
    for wrong in ({"budget": 0}, {"timeout": -1}, {"budget": "x"}):
        with pytest.raises(package.UsageError, match="must be a number above zero"):
            package.prove(raises, **wrong)
    with pytest.raises(package.UsageError, match="no option 'nonsense'"):
        package.prove(raises, nonsense=1)


def test_installed_is_a_plain_block() -> None:
    with package.installed():
        assert torch.cuda.is_available()
        assert torch.ones(2, device="cuda").sum().item() == 2
    assert not torch.cuda.is_available()


def test_copies_of_a_function_are_two_places(redgreen: Run, here: Path) -> None:
    for name in ("first", "second"):
        (here / f"{name}.py").write_text(
            "import torch\n"
            "def join(stream):\n"
            "    stream.wait_stream(torch.cuda.current_stream())\n"
        )
    (here / "both.py").write_text(
        "import first, second, torch\n"
        "def run():\n"
        "    x, side = torch.ones(8, device='cuda'), torch.cuda.Stream()\n"
        "    first.join(side)\n"
        "    with torch.cuda.stream(side): y = x * 2\n"
        "    torch.cuda.synchronize()\n"
        "    second.join(side)\n"
        "    with torch.cuda.stream(side): z = y * 2\n"
        "    torch.cuda.synchronize()\n"
        "    return z\n"
    )
    redgreen("prove", "both.py:run", "--quiet", "--json", "out.json")
    verdicts = {Path(e["file"]).name: e["verdict"] for e in proof()["edges"] if e["line"] == 3}
    assert verdicts == {"first.py": "load-bearing", "second.py": "redundant"}


def test_every_step_has_a_place_in_the_program_whoever_started_it(redgreen: Run) -> None:
    # The reading of the output and what dies at the return have no frame of the subject's own; a
    # token made from the console must know their labels in pytest.
    from redgreen.api import make_runner
    from redgreen.schedule import SERIAL
    from redgreen.subject import parse

    trace = make_runner(parse("main.py:racy"), "virtual", "native", 60).run(SERIAL).trace
    sites = [trace.sites[step.site] for step in trace.steps]
    assert {Path(site.file).name for site in sites} == {"main.py"}
    assert {site.function for site in sites} == {"racy"}
    assert sites[-1].code == "def racy():"
    trace = make_runner(parse("script.py"), "virtual", "native", 60).run(SERIAL).trace
    assert {trace.sites[s.site].function for s in trace.steps} == {"pipeline", "<module>"}


@pytest.mark.parametrize("how", ["out", "out.numpy()", "{'part': out[2:4]}", "[x, out]"])
def test_a_host_value_returned_without_a_sync_is_read_at_once(
    redgreen: Run, here: Path, how: str
) -> None:
    # Also beside a device tensor: reading that one waits, and must not come first.
    (here / "early.py").write_text(
        "import torch\n"
        "def run():\n"
        "    x = torch.ones(1, device='cuda')\n"
        "    out = torch.zeros(8).pin_memory()\n"
        "    out.copy_(torch.arange(8.0, device='cuda') + 1, non_blocking=True)\n"
        f"    return {how}\n"
    )
    result = redgreen("prove", "early.py:run", "--json", "out.json")
    assert result.status == 1
    (race,) = proof()["green"]["races"]
    assert (race["hazard"], race["changes_output"]) == ("HOST-RAW", True)
    assert (race["first"]["line"], race["second"]["line"]) == (5, 2)
    assert redgreen("replay", race["witness"], "early.py:run").status == 0
