#!/usr/bin/env bash
# Proves the transformers client and prints its verdict table: demo.sh [FOLDER of the environment].
set -euo pipefail
cd "$(dirname "$0")"
venv="${1:-.venv}"
bash setup.sh "$venv"
exec "$venv/bin/redgreen" prove examples/continuous_batching.py:eager_joined \
  --reference examples/continuous_batching.py:plain
