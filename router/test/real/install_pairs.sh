#!/bin/bash
# Installs what real prefill/decode pairs need beside the engines of install.sh, by which KV goes from one to the other
# over TCP. usage: install_pairs.sh vllm|sglang. It lands in ${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-~/.cache}/turnout}/pairs,
# not in the engines' own environments: they stay as the other tests know them.
#   vllm: NIXL, pairs/vllm (230 MB)      sglang: Mooncake, pairs/sglang (140 MB), and libibverbs where the system has none
# Run again, it does nothing. Where it cannot be done, the last line says why.
set -euo pipefail

kind=$1
root=${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/turnout}
python=$root/engines/$kind/bin/python
folder=$root/pairs/$kind
case $kind in
# Of NIXL's builds the one for the CUDA of torch 2.13.0: the package named nixl looks at that, and runs without a GPU.
vllm) pins="nixl==1.5.1 nixl-cu13==1.5.1" ;;
# As Mooncake of that version, but not linked with CUDA's libraries.
sglang) pins="mooncake-transfer-engine-non-cuda==0.3.13.post1" ;;
esac

say() { printf 'suite:real: %s\n' "$*" >&2; }
refuse() { say "$*"; exit 1; }
ready() { [ "$(cat "$folder/.stamp" 2>/dev/null)" = "$pins" ]; }

ready && exit 0
exec 9> "$root/.lock"
flock 9 # a second run waits for the first one's install and then finds it done
ready && exit 0
[ "${TURNOUT_REAL_INSTALL:-1}" != 0 ] || refuse "no $pins in $folder, and TURNOUT_REAL_INSTALL=0 forbids installing it"

rm -rf "$folder"
mkdir -p "$folder"
say "installing $pins into $folder"
# Without what they require: NIXL asks for torch, which is there; Mooncake for nothing that a transfer runs.
"$python" -m pip install --disable-pip-version-check --no-input --no-deps --target "$folder" $pins \
  > "$root/pairs/$kind.pip.log" 2>&1 ||
  refuse "pip could not install $pins: $(grep -E '^ERROR' "$root/pairs/$kind.pip.log" | tail -n 1 || true)"

# Mooncake is linked with the library of InfiniBand, also where it goes over TCP. It needs no driver and, unpacked, no root.
has_verbs() { "$python" -c 'import ctypes; ctypes.CDLL("libibverbs.so.1")' 2>/dev/null; }
if [ "$kind" = sglang ] && ! has_verbs; then
  packages="libibverbs1 libnl-3-200 libnl-route-3-200"
  mkdir "$folder/debian"
  (
    cd "$folder/debian"
    apt-get download -q $packages
    for package in *.deb; do dpkg-deb -x "$package" .; done
    rm -- *.deb
    mkdir ../lib
    find . -name 'lib*.so.*' -exec mv -t ../lib {} +
  ) > "$root/pairs/$kind.apt.log" 2>&1 || refuse "needs libibverbs.so.1 (Debian: apt install libibverbs1)"
  rm -rf "$folder/debian"
  LD_LIBRARY_PATH=$folder/lib has_verbs || refuse "needs libibverbs.so.1 (Debian: apt install libibverbs1)"
fi
printf '%s\n' "$pins" > "$folder/.stamp"
