#!/usr/bin/env bash
# Runs dynamo_wire_ref_worker.py (the worker side of the wire in plain Python, with faults on demand) in the foreground.
#   dynamo_ref_worker.sh VENV STORE MODEL_DIR [dynamo_wire_ref_worker.py arguments...]
set -euo pipefail
venv=${1:?VENV}; store=${2:?STORE}; model=${3:?MODEL_DIR}; shift 3
mkdir -p "$store"
exec "$venv/bin/python" "$(dirname "${BASH_SOURCE[0]}")/dynamo_wire_ref_worker.py" --store "$store" --model-path "$model" "$@"
