"""What is asked of a real GPU: the same proofs and the same witnesses as on the virtual one."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.silicon.source import PROGRAMS

ROOT = PROGRAMS.parents[2]
LIMIT = 200  # seconds for one command


@dataclass(frozen=True, slots=True)
class Row:
    """One experiment: what each device said, and what is wrong with that."""

    name: str
    virtual: str
    cuda: str
    wrong: tuple[str, ...]


def command(*arguments: str) -> tuple[int, str]:
    """Exit status and all that was printed by redgreen, in a process of its own."""
    try:
        done = subprocess.run([sys.executable, "-m", "redgreen", *arguments], cwd=ROOT, text=True,
                              capture_output=True, timeout=LIMIT)  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, f"no end within {LIMIT} s"
    return done.returncode, done.stdout + done.stderr


def prove(name: str, device: str, *options: str) -> tuple[int, dict[str, Any], str]:
    """The proof as JSON, {} if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "proof.json"
        status, text = command("prove", f"{PROGRAMS.relative_to(ROOT)}:{name}", "--device", device,
                               "--quiet", "--json", str(out), *options)  # fmt: skip
        written = out.is_file() and out.read_text()
        return status, json.loads(written) if written else {}, text


def verdicts(proof: dict[str, Any]) -> dict[str, str]:
    """Of the program and of each edge."""
    return {"green": proof["green"]["verdict"],
            **{edge["id"]: edge["verdict"] for edge in proof["edges"]}}  # fmt: skip


def witnesses(proof: dict[str, Any]) -> list[str]:
    """A token of each race and each load-bearing edge; none that needs a step in two parts."""
    races = [race["witness"] for race in proof["green"]["races"]]
    edges = [edge["witness"] for edge in proof["edges"] if edge["verdict"] == "load-bearing"]
    return [token for token in races + edges if token]


def replayed(token: str, name: str, device: str) -> str:
    """What is wrong with the replay, "" if it was reproduced."""
    status, text = command("replay", token, f"{PROGRAMS.relative_to(ROOT)}:{name}", "--device",
                           device, "--quiet")  # fmt: skip
    last = text.strip().splitlines()[-1:]
    return "" if status == 0 else f"replay on {device} exits {status}: {last}"


def experiment(name: str) -> Row:
    """Prove on both devices, compare, and run each one's first witnesses on the other."""
    wrong: list[str] = []
    shown: dict[str, str] = {}
    proofs: dict[str, dict[str, Any]] = {}
    for device in ("cuda", "virtual"):
        status, proof, text = prove(name, device)
        if not proof:
            return Row(name, "", f"exit {status}", (text[-3000:],))
        proofs[device] = proof
        green = proof["green"]
        shown[device] = f"{green['verdict']}, {green['schedules']} schedules"
    expected = "proved" if name.endswith("_fixed") else "refuted"
    mine, theirs = verdicts(proofs["cuda"]), verdicts(proofs["virtual"])
    if mine["green"] != expected:
        wrong.append(f"{mine['green']}, not {expected}")
    wrong += [f"{edge}: {mine.get(edge)} on cuda, {theirs.get(edge)} on virtual"
              for edge in sorted({*mine, *theirs}) if mine.get(edge) != theirs.get(edge)]
    for found, other in (("virtual", "cuda"), ("cuda", "virtual")):
        tokens = witnesses(proofs[found])
        if not tokens:
            wrong.append(f"no witness on {found}")
        wrong += filter(None, (replayed(token, name, other) for token in tokens[:1]))
    if wrong:
        wrong += [f"  cuda: {d['kind']}: {d['message']}" for d in proofs["cuda"]["diagnostics"]]
        wrong += [f"  cuda: {e['id']}: {e['verdict']} {e['reason']}"
                  for e in proofs["cuda"]["edges"]]
    return Row(name, shown["virtual"], shown["cuda"], tuple(wrong))


def deadlock() -> Row:
    """A wait behind a gate that nothing sees is ended by the watchdog."""
    status, proof, text = prove("hidden_sync", "cuda", "--timeout", "9")
    said = " ".join(d["message"] for d in proof.get("diagnostics", ())) if proof else text
    fired = "all gates were opened" in " ".join(said.split())
    wrong = () if status == 3 and fired else (f"exit {status}", text[-1500:])
    return Row("hidden_sync", "", "inconclusive, by the watchdog" if not wrong else "", wrong)
