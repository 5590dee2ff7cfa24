"""Runs a fuzz target under atheris, which follows the coverage of the parsers' code. Needs the extra named fuzz.

python fuzz/parsers.py [answers|json] -runs=100000 [libFuzzer's other options and corpus folders]
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
with atheris.instrument_imports(include=["forebay.recipe.parsers"]):
    from fuzz.targets import TARGETS


def main() -> None:
    """The first argument names the target; `answers` when it is none."""
    arguments = sys.argv[1:]
    name = arguments.pop(0) if arguments and arguments[0] in TARGETS else "answers"
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
