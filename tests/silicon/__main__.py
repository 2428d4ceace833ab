"""``python -m tests.silicon [JOBS]``: everything that needs a real GPU, a short table last."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.silicon import experiments
from tests.silicon.source import ALL


def _line(row: experiments.Row) -> str:
    return f"{row.name:24}  {row.virtual:24}  {row.cuda:32}  {'no' if row.wrong else 'yes'}"


def main() -> int:
    # Site packages may be on a read-only disk: without this every process compiles torch again.
    os.environ.setdefault("PYTHONPYCACHEPREFIX", "/tmp/redgreen-pycache")
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    begin = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(experiments.experiment, name) for name in ALL]
        running.append(pool.submit(experiments.deadlock))
        rows = []
        for future in running:
            rows.append(future.result())
            print(_line(rows[-1]), flush=True)  # also if what comes takes too long
            for line in rows[-1].wrong:
                print(f"{rows[-1].name}: {line}", flush=True)
    print(f"\n{'experiment':24}  {'virtual':24}  {'cuda':32}  same")
    for row in rows:
        print(_line(row))
    failed = sum(bool(row.wrong) for row in rows)
    print(f"{len(rows)} experiments, {failed} failed, {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
