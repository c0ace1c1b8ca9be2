"""`python -m topomask ...` is the command line program `topomask ...`."""

import sys

from topomask._load import run_program

if __name__ == "__main__":
    run_program(sys.argv[1:])
