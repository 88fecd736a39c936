#!/usr/bin/env bash
# Does what README.md says, in its own words and as somebody who has just cloned: a clone of HEAD, an empty home, no
# environment, and, where the system allows it, a network of its own, so that no port is taken and nothing else is found.
#   tests/newcomer.sh           builds from nothing, as the README does (minutes)
#   tests/newcomer.sh BINARY    `cargo run --release --` starts BINARY instead
# Fails when a step does.
set -euo pipefail
if [ -z "${NEWCOMER_HOME:-}" ]; then
  top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  binary=${1:+$(realpath "$1")}
  home=$(mktemp -d)
  trap 'rm -rf "$home"' EXIT
  if ! git clone --quiet "$top" "$home/roost" 2>/dev/null; then
    echo "newcomer: not a git repository: a copy of the files instead"
    mkdir "$home/roost"
    tar -C "$top" --exclude=./target --exclude=./.git -c . | tar -C "$home/roost" -x
  fi
  # The toolchain is what the README asks for; it is found where it is.
  tools="CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}"
  # Without a build nothing is fetched, so no network is missed.
  alone=()
  if [ -n "$binary" ] && unshare -rn true 2>/dev/null && command -v ip >/dev/null; then
    alone=(unshare -rn)
  else
    echo "newcomer: in the network of this machine: port 8000 must be free"
  fi
  # shellcheck disable=SC2086
  env -i HOME="$home" PATH="$PATH" $tools NEWCOMER_HOME="$home" NEWCOMER_BINARY="$binary" "${alone[@]}" \
    bash "$home/roost/tests/newcomer.sh"
  exit
fi

cd "$NEWCOMER_HOME/roost"
ip link set lo up 2>/dev/null || true
if [ -n "$NEWCOMER_BINARY" ]; then
  mkdir "$HOME/bin"
  # shellcheck disable=SC2016
  printf '#!/bin/sh\n[ "$1 $2 $3" = "run --release --" ] || { echo "not in the README: cargo $*" >&2; exit 1; }\nshift 3\nexec "%s" "$@"\n' \
    "$NEWCOMER_BINARY" > "$HOME/bin/cargo"
  printf '#!/bin/sh\nexec "%s" "$@"\n' "$NEWCOMER_BINARY" > "$HOME/bin/roost"
  chmod +x "$HOME"/bin/*
  export PATH="$HOME/bin:$PATH"
fi

# The README's blocks of commands, one file each.
awk '/^```sh$/ { n++; on = 1; next } /^```$/ { on = 0 } on { print > ENVIRON["HOME"] "/step" n }' README.md
step() { grep -l -- "$1" "$HOME"/step* | head -n 1 || { echo "newcomer: the README has no step with $1" >&2; exit 1; }; }

echo "newcomer: $(cat "$(step demo)")"
touch "$HOME/said"
# In place of the shell, so that the process that is ended is the demo.
bash -c "exec $(cat "$(step demo)")" > "$HOME/said" 2> "$HOME/log" &
demo=$!
trap 'kill "$demo" 2>/dev/null || true' EXIT
until grep -q '^  -d ' "$HOME/said"; do
  kill -0 "$demo" 2>/dev/null || { cat "$HOME/said" "$HOME/log" >&2; exit 1; }
  sleep 0.2
done
grep -q "The session came home" "$HOME/said"

ask() {
  bash "$1" > "$HOME/answer" 2> "$HOME/curl.log" || { cat "$HOME/curl.log" >&2; exit 1; }
  grep -q '"finish_reason":"' "$HOME/answer" && grep -qx 'data: \[DONE\]' <(tr -d '\r' < "$HOME/answer") ||
    { cat "$HOME/answer" >&2; exit 1; }
}
echo "newcomer: the line that the demo prints"
sed -n '/^curl /,$p' "$HOME/said" > "$HOME/printed"
ask "$HOME/printed"
echo "newcomer: $(head -n 1 "$(step '"model":"MODEL"')") …"
model=$(curl -s 127.0.0.1:8000/v1/models | sed 's/.*"id":"\([^"]*\)".*/\1/')
sed "s/MODEL/$model/" "$(step '"model":"MODEL"')" > "$HOME/asked"
ask "$HOME/asked"
kill "$demo"
wait "$demo" || true

# Workers are not there; that the options are taken is what can be seen.
if command -v roost >/dev/null; then
  for each in 'http-port=8000' '--sglang'; do
    line=$(tail -n 1 "$(step "$each")")
    echo "newcomer: $line --dump-config"
    case $each in
      --sglang) bash -c "${line/roost serve/roost serve --dump-config}" > "$HOME/config" ;;
      *) bash -c "$line --dump-config" > "$HOME/config" ;;
    esac
    grep -q '^router-session-affinity-ttl-secs = "4h" # --router' "$HOME/config" ||
      { cat "$HOME/config" >&2; exit 1; }
  done
fi

# What it points to is there.
for link in $(grep -oE '\]\([^)#:]+' README.md | cut -c3-); do
  [ -e "$link" ] || { echo "newcomer: the README points to $link, which is not there" >&2; exit 1; }
done
echo "newcomer: done"
