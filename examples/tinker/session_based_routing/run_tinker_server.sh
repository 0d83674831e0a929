#!/usr/bin/env bash
# Four SIMULATED vLLM engines and turnout with its Tinker API on port 8000. Arguments are options of turnout.
# The name of the model is the folder of its tokenizer, so that clients find the tokenizer without a model hub.
set -euo pipefail
cd "$(dirname "$0")/../../.."
PATH="$PWD/node_modules/.bin:$PATH"

model=${MODEL:-$(mktemp -d)/sim}
turnout=(node router/bin/turnout.js)
"${turnout[@]}" sim --write-tokenizer "$model"

# With --key-order vllm-router the policy logs each decision at level info, as vllm-router does. Of the log only these lines are shown.
exec "${turnout[@]}" launch --engine sim --dp-size 4 --tinker --policy consistent_hash \
  --host 127.0.0.1 --port "${PORT:-8000}" --prometheus-port 0 --key-order vllm-router --log-format text "$@" \
  -- kind=vllm "model=$model" timeScale=0.2 \
  > >(grep --line-buffered -E ' listening on |sticky-routing|consistent_hash: |WARN|ERROR') 2>&1
