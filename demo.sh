#!/usr/bin/env bash
# Proves the transformers client, CUDA graphs off and on, and prints the two verdict tables:
# demo.sh [FOLDER of the environment].
set -euo pipefail
cd "$(dirname "$0")"
venv="${1:-.venv}"
bash setup.sh "$venv"
client=examples/continuous_batching.py
prove() { "$venv/bin/redgreen" prove "$client:$1" --reference "$client:plain"; }
graphs="$(mktemp)"
trap 'rm -f "$graphs"; kill %1 2>/dev/null || true' EXIT
prove graphs_joined >"$graphs" 2>&1 &  # at the same time: one core each
prove eager_joined
status=0
wait %1 || status=$?
echo
grep -v '^redgreen: ' "$graphs" || true
exit "$status"
