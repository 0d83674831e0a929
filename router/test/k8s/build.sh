#!/bin/bash
# Builds what `npm test -- suite:k8s` drives: a real kube-apiserver and a real etcd, from their Go modules. They land outside the
# checkout, once, about 130 MB (and Go's own caches) and five to ten minutes:
#   ${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-~/.cache}/turnout}/kube/bin/{kube-apiserver,etcd}
# Run again, it does nothing. Where it cannot be done, the last line says why.
# TURNOUT_REAL_INSTALL=0 accepts what is cached but builds nothing.
set -euo pipefail

root=${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/turnout}/kube
kubernetes=1.36.4
etcd=3.6.16
pins="kubernetes $kubernetes etcd $etcd"

say() { printf 'suite:k8s: %s\n' "$*" >&2; }
refuse() { say "$*"; exit 1; }
ready() { [ "$(cat "$root/.stamp" 2>/dev/null)" = "$pins" ] && [ -x "$root/bin/kube-apiserver" ] && [ -x "$root/bin/etcd" ]; }

command -v openssl > /dev/null || refuse "needs openssl, for the certificate of the API server"
ready && exit 0
[ "$(uname -s)" = Linux ] || refuse "is built on Linux only"
[ "${TURNOUT_REAL_INSTALL:-1}" != 0 ] || refuse "none in $root, and TURNOUT_REAL_INSTALL=0 forbids building it"
command -v go > /dev/null || refuse "needs Go 1.26 or newer to build it"
mkdir -p "$root/bin" "$root/kube-src" "$root/etcd-src" 2>/dev/null && [ -w "$root/bin" ] || refuse "cannot write to $root"
exec 9> "$root/.lock"
flock 9 # a second run waits for the first one's build and then finds it done
ready && exit 0

export GOFLAGS="-mod=mod -p=2 -buildvcs=false" CGO_ENABLED=0 GOTOOLCHAIN=local
log=$root/build.log
build() { # FOLDER PACKAGE BINARY FLAGS
  say "building $3: some minutes"
  (cd "$root/$1" && nice -n 19 go build -trimpath -ldflags "-s -w ${4:-}" -o "$root/bin/$3" "$2") > "$log" 2>&1 ||
    refuse "$3 could not be built: $(tail -n 1 "$log") (see $log)"
}

# Kubernetes v1.X.Y goes with its staging modules v0.X.Y; outside of its own repository each has to be named.
{
  printf 'module realkube\n\ngo 1.26.0\n\ngodebug default=go1.26\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' "$kubernetes"
  for module in api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap \
    code-generator component-base component-helpers controller-manager cri-api cri-client cri-streaming csi-translation-lib \
    dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator kube-controller-manager kube-proxy \
    kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission sample-apiserver sample-cli-plugin \
    sample-controller streaming; do
    printf '\tk8s.io/%s => k8s.io/%s v0.%s\n' "$module" "$module" "${kubernetes#1.}"
  done
  printf ')\n\ntool k8s.io/kubernetes/cmd/kube-apiserver\n'
} > "$root/kube-src/go.mod"
version=k8s.io/component-base/version
minor=${kubernetes#1.}
build kube-src k8s.io/kubernetes/cmd/kube-apiserver kube-apiserver \
  "-X $version.gitVersion=v$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*}"

printf 'module realetcd\n\ngo 1.26.0\n\nrequire go.etcd.io/etcd/server/v3 v%s\n\ntool go.etcd.io/etcd/server/v3\n' "$etcd" \
  > "$root/etcd-src/go.mod"
build etcd-src go.etcd.io/etcd/server/v3 etcd

printf '%s\n' "$pins" > "$root/.stamp"
