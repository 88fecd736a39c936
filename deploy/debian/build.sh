#!/usr/bin/env bash
# Builds a Debian package of a `roost` binary:  deploy/debian/build.sh BINARY [OUTPUT_FOLDER]
# It holds the binary, a systemd unit that is not started, the configuration file with every option, the
# documents, the manual page and completions for shells.
set -euo pipefail
binary=${1:?BINARY}
out=${2:-.}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
version=$("$binary" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+[^ ]*' | head -n 1)
arch=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
install -D -m 755 "$binary" "$root/usr/bin/roost"
install -D -m 644 "$here/deploy/roost.service" "$root/lib/systemd/system/roost.service"
install -D -m 644 "$here/config/roost.toml" "$root/etc/roost/roost.toml"
install -D -m 644 "$here/README.md" "$root/usr/share/doc/roost/README.md"
install -D -m 644 "$here/CHANGELOG.md" "$root/usr/share/doc/roost/changelog"
for page in "$here"/docs/*.md; do install -D -m 644 "$page" "$root/usr/share/doc/roost/docs/$(basename "$page")"; done
mkdir -p "$root/usr/share/man/man1" "$root/usr/share/bash-completion/completions" \
  "$root/usr/share/zsh/vendor-completions" "$root/usr/share/fish/vendor_completions.d" "$root/DEBIAN"
"$binary" man | gzip -9n > "$root/usr/share/man/man1/roost.1.gz"
"$binary" completions bash > "$root/usr/share/bash-completion/completions/roost"
"$binary" completions zsh > "$root/usr/share/zsh/vendor-completions/_roost"
"$binary" completions fish > "$root/usr/share/fish/vendor_completions.d/roost.fish"
echo /etc/roost/roost.toml > "$root/DEBIAN/conffiles"
cat > "$root/DEBIAN/control" <<EOF
Package: roost
Version: $version
Architecture: $arch
Section: net
Priority: optional
Depends: libc6
Maintainer: The roost developers <roost@localhost>
Description: session-affinity, KV-aware router for fleets of SGLang workers
 An OpenAI-compatible frontend that takes the place of NVIDIA Dynamo's: same
 options, same wire, same metric names.
EOF
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$root" "$out/roost_${version}_${arch}.deb"
