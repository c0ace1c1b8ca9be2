"""Runs pytest, or says what is missing for it and exits with 77 (skipped)."""

import importlib.util
import sys
from pathlib import Path

sources = [Path(argument).read_text() for argument in sys.argv[1:] if argument.endswith(".py")]
needed = ["pytest", "numpy"] + ["scipy"] * any("import scipy" in source for source in sources)
missing = [name for name in needed if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: this Python has no {', '.join(missing)}")
    sys.exit(77)

import pytest

sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[1:]]))
