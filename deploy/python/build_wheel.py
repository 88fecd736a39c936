#!/usr/bin/env python3
"""Builds a wheel that carries a `roost` binary.

    python3 deploy/python/build_wheel.py BINARY [OUTPUT_FOLDER]

`pip install` of it puts `roost` on the path and gives `python3 -m roost.frontend`, which takes the arguments of
`python3 -m dynamo.frontend`. The version is the binary's own. Uses the standard library alone.
"""

import base64
import hashlib
import pathlib
import platform
import re
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
NAME = "roost"


def platform_tag(binary: pathlib.Path) -> str:
    """`manylinux_X_Y` by the newest glibc symbol that the binary needs; a static one runs anywhere."""
    machine = platform.machine()
    needed = [(int(a), int(b)) for a, b in re.findall(rb"GLIBC_(\d+)\.(\d+)", binary.read_bytes())]
    needed = [version for version in needed if version[0] == 2]
    major, minor = max(needed, default=(2, 17))
    return f"manylinux_{major}_{minor}_{machine}"


def version_of(binary: pathlib.Path) -> str:
    text = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\d+\.\d+\.\d+\S*", text)
    if not found:
        sys.exit(f"{binary} --version does not say a version: {text!r}")
    return found[0]


def digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    binary = pathlib.Path(sys.argv[1])
    out = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else ".")
    version, tag = version_of(binary), f"py3-none-{platform_tag(binary)}"
    info = f"{NAME}-{version}.dist-info"
    files = {f"{NAME}/{path.name}": (path.read_bytes(), 0o644) for path in sorted((HERE / NAME).glob("*.py"))}
    files[f"{NAME}-{version}.data/scripts/{NAME}"] = (binary.read_bytes(), 0o755)
    metadata = (
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\nRequires-Python: >=3.8\n"
        "Summary: Session-affinity, KV-aware router and OpenAI-compatible frontend for fleets of SGLang workers\n"
        "License: Apache-2.0\n"
    )
    files[f"{info}/METADATA"] = (metadata.encode(), 0o644)
    wheel = f"Wheel-Version: 1.0\nGenerator: roost\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/WHEEL"] = (wheel.encode(), 0o644)
    record = "".join(f"{name},{digest(content)},{len(content)}\n" for name, (content, _) in files.items())
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)

    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{NAME}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (content, mode) in files.items():
            entry = zipfile.ZipInfo(name, date_time=(2026, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    print(path)


if __name__ == "__main__":
    main()
