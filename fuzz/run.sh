#!/usr/bin/env bash
# Builds and runs the fuzz targets without cargo-fuzz: the same flags for a nightly compiler.
#   fuzz/run.sh [SECONDS] [TARGET...]       (60 s, all targets); corpora and findings go to fuzz/corpus and fuzz/artifacts
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
seconds=${1:-60}; shift || true
targets=("$@"); [ ${#targets[@]} -gt 0 ] || targets=(frame envelope card event)
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Zsanitizer=address -Cdebug-assertions -Ccodegen-units=1"
# With a target of its own, build scripts and macros are not instrumented.
cargo +nightly build --release --target "$host"
for target in "${targets[@]}"; do
  mkdir -p "corpus/$target" "artifacts/$target"
  "$CARGO_TARGET_DIR/$host/release/$target" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=2048 \
    -malloc_limit_mb=256 -timeout=10 -print_final_stats=1 -artifact_prefix="artifacts/$target/" "corpus/$target"
done
