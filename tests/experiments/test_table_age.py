"""The page of experiments says which tables were measured with other code than today's."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.places import ROOT

pytestmark = [pytest.mark.nightly, pytest.mark.process]
TABLES = ROOT / "docs" / "experiments"
DECIDES = (
    "vcdl/rules", "vcdl/job/update.py", "vcdl/job/training.py", "vcdl/job/lr_schedule.py", "vcdl/job/growing_slots.py",
    "vcdl/job/cut.py",
)  # fmt: skip
"""The code that decides what a job that names nothing learns."""


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@cache
def code_at(commit: str) -> dict[str, str]:
    """What that code does at a commit: without comments, docstrings and layout."""
    paths = git("ls-tree", "-r", "--name-only", commit, "--", *DECIDES).split()
    return {path: meaning(git("show", f"{commit}:{path}")) for path in paths}


def meaning(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [part for part in node.body if not _is_text(part)]
    return ast.dump(tree)


def _is_text(part: ast.stmt) -> bool:
    return isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)


def test_words_are_no_change_and_numbers_are() -> None:
    assert meaning('"""A."""\nx = 1  # so\n"""B."""\n') == meaning("x = 1\n") != meaning("x = 2\n")


def test_the_page_names_the_tables_that_are_older_than_the_code() -> None:
    if git("rev-parse", "--is-shallow-repository").strip() != "false":
        pytest.skip("a shallow clone does not know when the tables were measured")
    older = {
        table.stem
        for table in TABLES.glob("*.csv")
        if code_at(git("log", "-1", "--format=%H", "--", str(table)).strip()) != code_at("HEAD")
    }
    page = Path(TABLES / "index.md").read_text(encoding="utf-8")
    section = page.partition("## Which tables are older")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([a-z0-9-]+)`", section)) == older
