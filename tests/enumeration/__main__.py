"""``python -m tests.enumeration SEED ...``: the programs, and where redgreen and they disagree."""

import sys

from .compare import compare, explain
from .generate import generate

for seed in map(int, sys.argv[1:]):
    found = compare(generate(seed), f"seed{seed}")
    print(f"seed {seed}: {found.result.proof.green.verdict}, {len(found.result.seen)} runs")
    print(explain(found))
