#!/usr/bin/env bash
# Sets up an environment for this checkout: setup.sh [FOLDER], by default .venv. Needs Python 3.11+.
# torch is pinned so that a machine without a GPU gets a known build; redgreen itself takes >= 2.11.
set -euo pipefail
cd "$(dirname "$0")"
venv="${1:-.venv}"
extras='from importlib.util import find_spec; import sys
sys.exit(not all(map(find_spec, ("redgreen", "pytest", "xdist", "hypothesis", "transformers"))))'
if ! { [ -x "$venv/bin/ruff" ] && "$venv/bin/python" -c "$extras"; } 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install -q --disable-pip-version-check torch==2.13.0
  "$venv/bin/python" -m pip install -q --disable-pip-version-check -e '.[test,lint]'
fi
