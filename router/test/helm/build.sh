#!/bin/bash
# Builds the helm that `npm test -- suite:helm` drives, from its Go module, once, outside the checkout (60 MB, some minutes):
#   ${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-~/.cache}/turnout}/helm/bin/helm
# Run again, it does nothing. Where it cannot be done, the last line says why.
# TURNOUT_REAL_INSTALL=0 accepts what is cached but builds nothing.
set -euo pipefail

root=${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/turnout}/helm
version=3.22.0

say() { printf 'suite:helm: %s\n' "$*" >&2; }
refuse() { say "$*"; exit 1; }
ready() { [ "$(cat "$root/.stamp" 2>/dev/null)" = "helm $version" ] && [ -x "$root/bin/helm" ]; }

ready && exit 0
[ "${TURNOUT_REAL_INSTALL:-1}" != 0 ] || refuse "none in $root, and TURNOUT_REAL_INSTALL=0 forbids building it"
command -v go > /dev/null || refuse "needs Go 1.26 or newer to build it"
mkdir -p "$root/bin" 2>/dev/null && [ -w "$root/bin" ] || refuse "cannot write to $root"
exec 9> "$root/.lock"
flock 9 # a second run waits for the first one's build and then finds it done
ready && exit 0

log=$root/build.log
say "building helm $version: some minutes"
GOFLAGS="-p=2" CGO_ENABLED=0 GOTOOLCHAIN=local GOBIN=$root/bin nice -n 19 \
  go install -trimpath -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=v$version" \
  "helm.sh/helm/v3/cmd/helm@v$version" > "$log" 2>&1 ||
  refuse "helm could not be built: $(tail -n 1 "$log") (see $log)"
printf 'helm %s\n' "$version" > "$root/.stamp"
