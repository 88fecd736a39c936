"""`python3 -m roost.frontend`: `roost serve` with the arguments of `python3 -m dynamo.frontend`.

The process is replaced, so that signals, exit status and standard streams are those of the binary.
"""

import os
import shutil
import sys
import sysconfig


def binary() -> str:
    """The binary of this installation, else the one on the path."""
    installed = os.path.join(sysconfig.get_path("scripts"), "roost")
    if os.access(installed, os.X_OK):
        return installed
    found = shutil.which("roost")
    if found is None:
        sys.exit("roost.frontend: the roost binary is neither beside this Python nor on the path")
    return found


def main() -> None:
    path = binary()
    os.execv(path, [path, "serve", *sys.argv[1:]])


if __name__ == "__main__":
    main()
