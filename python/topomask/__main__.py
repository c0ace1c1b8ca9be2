"""`python -m topomask ...` is the command line program `topomask ...`."""

from __future__ import annotations

import os
import sys

from topomask._load import program


def main() -> None:
    try:
        os.execv(program(), ["topomask", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"topomask: {program()} does not run: {error.strerror}")


if __name__ == "__main__":
    main()
