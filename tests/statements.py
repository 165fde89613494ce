"""The statements of a Python file, for tests that look at imports and classes."""

import ast
from functools import cache
from pathlib import Path


@cache
def statements(file: Path) -> list[ast.AST]:
    """All statements of a file, at any depth. Expressions, which are most of a file's syntax, are not looked into."""
    found: list[ast.AST] = []
    deeper: list[ast.AST] = [ast.parse(file.read_bytes())]
    while deeper:
        found.append(deeper.pop())
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            deeper.extend(getattr(found[-1], part, ()))
    return found
