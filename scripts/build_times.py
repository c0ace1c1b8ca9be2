"""Where the time of a build goes: seconds by target and the slowest files, from Ninja's log.

    scripts/build_times.py build/release [number of files]

Seconds are wall-clock time of each command. With as many jobs as cores on an idle machine their sum is CPU time.
"""

import collections
import re
import sys
from pathlib import Path


def read_log(folder: Path) -> dict[str, float]:
    """Seconds that each output took when it was built last."""
    seconds = {}
    for line in (folder / ".ninja_log").read_text().splitlines():
        if not line.startswith("#"):
            begin, end, _, output, _ = line.split("\t")
            seconds[output] = (int(end) - int(begin)) / 1000
    return seconds


def target_of(output: str) -> str:
    inside = re.search(r"([^/]+)\.dir/", output)
    if inside is None:
        return "links"
    name = inside.group(1)
    if output.startswith("tests/"):
        return "tests of CUDA" if name.startswith("cuda_") else "tests"
    return f"{name}, CUDA" if output.endswith(".cu.o") else name


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/release")
    shown = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    seconds = read_log(folder)
    by_target: dict[str, list[float]] = collections.defaultdict(list)
    for output, taken in seconds.items():
        by_target[target_of(output)].append(taken)
    for target, taken in sorted(by_target.items(), key=lambda item: -sum(item[1])):
        print(f"{sum(taken):8.1f} s  {target} ({len(taken)})")
    print(f"{sum(seconds.values()):8.1f} s  in all\n")
    for output in sorted(seconds, key=seconds.__getitem__, reverse=True)[:shown]:
        print(f"{seconds[output]:8.1f} s  {output}")


if __name__ == "__main__":
    main()
