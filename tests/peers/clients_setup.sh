#!/usr/bin/env bash
# Installs the clients that the tests let loose on a frontend, by package name.
#   clients_setup.sh DIR
# Needs Python (3.11 was used) with pip, and npm (Node 20 was used), both with their ordinary registries. About 0.5 GB.
# What cannot be had is left out: the tests that need it say so and are skipped.
set -uo pipefail
dir=${1:?usage: clients_setup.sh DIR}
mkdir -p "$dir/node"

# Newer versions of hypothesis break this schemathesis.
python=(hypothesis==6.148.7 openai==2.8.1 anthropic==0.75.0 schemathesis==4.6.8)
[ -x "$dir/venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$dir/venv"
for package in "${python[@]}"; do
  "$dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$package" \
    || "$dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check "${package%%==*}" \
    || echo "clients: ${package%%==*} cannot be installed"
done

node=(ai@5 @ai-sdk/openai-compatible@1 zod@4 @openai/codex@0.171.0)
for package in "${node[@]}"; do
  npm install --prefix "$dir/node" --no-audit --no-fund --silent "$package" \
    || echo "clients: $package cannot be installed"
done
