#!/usr/bin/env bash
# Sets up and runs the checks and tests: test.sh [FOLDER of the environment].
set -euo pipefail
cd "$(dirname "$0")"
venv="${1:-.venv}"
bash setup.sh "$venv"
"$venv/bin/ruff" check -q .
"$venv/bin/mypy"
exec "$venv/bin/python" -m pytest -q -n 2
