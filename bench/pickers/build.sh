#!/bin/bash
# Builds the endpoint pickers that `npm run bench -- pickers --install-peers` measures beside this one's, from pinned sources, once, outside the
# checkout (170 MB, and Go's own caches; some minutes each):
#   ${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-~/.cache}/turnout}/pickers/bin/{lwepp,llm-d-epp}
# lwepp is the reference of the Gateway API Inference Extension, from its Go module; llm-d-epp that of llm-d, from its repository.
# TURNOUT_LLMD_SOURCE=FOLDER names a checkout of that repository at the pinned commit; without it the repository is cloned.
# Run again, it does nothing. Where it cannot be done, the last line says why.
# TURNOUT_REAL_INSTALL=0 accepts what is cached but builds nothing.
set -euo pipefail

root=${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/turnout}/pickers
extension=1.6.0
llmd=0.10.0
llmd_commit=71f4f0999f95b96c49a9d0c4afbd18dfdb943c26
llmd_url=https://github.com/llm-d/llm-d-router
module=sigs.k8s.io/gateway-api-inference-extension

say() { printf 'bench: %s\n' "$*" >&2; }
refuse() { say "$*"; exit 1; }
ready() { # BINARY VERSION
  [ "$(cat "$root/$1.stamp" 2>/dev/null)" = "$2" ] && [ -x "$root/bin/$1" ]
}
all_ready() { ready lwepp "$extension" && ready llm-d-epp "$llmd"; }

all_ready && exit 0
[ "${TURNOUT_REAL_INSTALL:-1}" != 0 ] || refuse "not all in $root, and TURNOUT_REAL_INSTALL=0 forbids building them"
command -v go > /dev/null || refuse "needs Go 1.26 or newer to build them (https://go.dev/dl), and no go is on the PATH"
mkdir -p "$root/bin" "$root/lwepp-src" 2>/dev/null && [ -w "$root/bin" ] || refuse "cannot write to $root"
exec 9> "$root/.lock"
flock 9 # a second run waits for the first one's build and then finds it done

export GOFLAGS="-mod=mod -p=2 -buildvcs=false" CGO_ENABLED=0 GOTOOLCHAIN=local
log=$root/build.log
build() { # FOLDER PACKAGE BINARY VERSION
  say "building $3 $4: some minutes"
  (cd "$1" && nice -n 19 go build -trimpath -o "$root/bin/$3" "$2") > "$log" 2>&1 ||
    refuse "$3 could not be built: $(tail -n 1 "$log") (see $log)"
  printf '%s\n' "$4" > "$root/$3.stamp"
}

if ! ready lwepp "$extension"; then
  printf 'module lwepp\n\ngo 1.26.0\n\nrequire %s v%s\n\ntool %s/cmd/lwepp\n' "$module" "$extension" "$module" > "$root/lwepp-src/go.mod"
  build "$root/lwepp-src" "$module/cmd/lwepp" lwepp "$extension"
  source=$(cd "$root/lwepp-src" && go list -m -f '{{.Dir}}' "$module")
  install -m 0644 "$source/config/crd/bases/inference.networking.k8s.io_inferencepools.yaml" "$root/inferencepools.yaml"
fi

if ! ready llm-d-epp "$llmd"; then
  source=${TURNOUT_LLMD_SOURCE:-$root/llm-d-src}
  if [ ! -e "$source" ]; then
    say "cloning $llmd_url"
    git clone --quiet --depth 1 --branch "v$llmd" "$llmd_url" "$source" > "$log" 2>&1 ||
      refuse "llm-d-epp has no source: $(tail -n 1 "$log") (or name a checkout of $llmd_url, v$llmd: TURNOUT_LLMD_SOURCE=FOLDER)"
  fi
  found=$(git -C "$source" rev-parse HEAD 2>/dev/null || true)
  [ "$found" = "$llmd_commit" ] || refuse "$source is at ${found:-no commit}, not at $llmd_commit (v$llmd)"
  GOFLAGS="-p=2 -buildvcs=false" build "$source" ./cmd/epp llm-d-epp "$llmd"
fi
