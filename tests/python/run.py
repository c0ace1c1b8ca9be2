"""Runs pytest, or says what is missing for it and exits with 77 (skipped)."""

import importlib.util
import sys

missing = [name for name in ("pytest", "numpy", "scipy") if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: this Python has no {', '.join(missing)}")
    sys.exit(77)

import pytest

sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[1:]]))
