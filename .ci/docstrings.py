"""Refuse docstrings that begin with a word that hides their subject: `python .ci/docstrings.py FOLDER…`.

A docstring names its subject: "The splits on which the final weights are evaluated.", not "That a job's end is measured
on: …" (CONTRIBUTING.md). The docstring of a constant or an attribute, the text behind it, counts as well. Prints
file:line for each, and ends with 1 when there is any.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

REFUSED = ("Of ", "That ", "What is ", "Who ", "Whoever ")


def refused_in(path: Path) -> Iterator[str]:
    """A line for each docstring of a file that begins with a refused word."""
    for node in ast.walk(ast.parse(path.read_bytes(), path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            text = node.value.value.strip()
            if text.startswith(REFUSED):
                yield f"{path}:{node.lineno}: begin with the noun: {text.splitlines()[0]}"


def main(folders: list[str]) -> int:
    """Print what is refused; returns the exit code."""
    found = [line for folder in folders for path in sorted(Path(folder).rglob("*.py")) for line in refused_in(path)]
    print("\n".join(found) or "docstrings: all begin with their subject")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
