"""The messages that the page on troubles quotes are messages of VCDL."""

import ast
import re

from tests.places import DOCS, ROOT


def _strings() -> str:
    """Return every string of the package, one in a line; what an f-string fills in is missing."""
    found = []
    for path in (ROOT / "vcdl").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("…".join(str(part.value) for part in node.values if isinstance(part, ast.Constant)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_each_quoted_message_is_one_of_ours() -> None:
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| The message says \|.*\n\| --.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    quoted = [
        words for table in tables for row in table.splitlines() for words in re.findall("`([^`]+)`", row.split("|")[1])
    ]
    said = _strings()
    assert len(quoted) > 15
    assert [words for words in quoted if words not in said] == []
