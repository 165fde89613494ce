"""CONTRIBUTING.md names the files that a new part touches. Each existing part is in just these."""

import ast
import importlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from benchmarks.experiments import NAMES as EXPERIMENTS
from tests.places import ROOT
from tests.statements import statements
from vcdl.cli import COMMANDS
from vcdl.codecs.choose import _CODECS
from vcdl.errors.refusal import Refusal
from vcdl.job.data import SOURCES
from vcdl.job.training import TrainingSettings
from vcdl.job.update import RULES
from vcdl.loop.grid import Grid
from vcdl.run.kind import RUN_KINDS, RunKind
from vcdl.stores.settings import STORES
from vcdl.wire.workunit import Training

DOCUMENT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PARTS: dict[str, Sequence[str]] = {
    "rule": tuple(RULES), "codec": tuple(_CODECS), "store": tuple(sorted({kind.scheme for kind in STORES.values()})),
    "data source": tuple(SOURCES), "command": COMMANDS, "experiment": EXPERIMENTS,
}  # fmt: skip
FACTS: dict[str, Sequence[str]] = {
    "key that clients get": sorted(Training.__dataclass_fields__.keys() & TrainingSettings.model_fields.keys()),
    "refusal": [refusal.value for refusal in Refusal],
}
"""Parts that are no files of their own, but a name in several."""
EVERY = [(kind, name) for kind, names in PARTS.items() for name in names]
WITHIN: dict[str, tuple[str, ...]] = {
    "rule": ("vcdl/rules/",),
    "codec": ("vcdl/codecs/",),
    "store": ("vcdl/stores/",),
    "command": ("vcdl/commands/",),
    "experiment": ("benchmarks/experiments/",),
}
"""Where parts of a kind may use each other."""


def recipe(kind: str) -> list[list[str]]:
    """The rows of a recipe's table; the first cell is the file."""
    (section,) = re.findall(rf"^### Add an? {kind}\n(.*?)(?=^##|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| `([^`]+)` \|(.*)\|$", section, re.MULTILINE)
    return [[file, *(cell.strip() for cell in rest.split("|"))] for file, rest in rows]


def files(kind: str) -> list[str]:
    return [row[0] for row in recipe(kind)]


def file_of(template: str, name: str) -> Path:
    """Python's names have no hyphens."""
    plain = name.replace("-", "_") if template.endswith(".py") else name
    return ROOT / template.replace("NAME", plain)


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_each_part_is_registered_where_its_recipe_says(kind: str, name: str) -> None:
    for template in files(kind):
        text = file_of(template, name).read_text(encoding="utf-8")
        if "NAME" not in template:
            assert re.search(rf"(?<![a-z]){re.escape(name)}", text), f"{template} does not mention {name}"


@cache
def imports() -> dict[str, set[str]]:
    """Each file of vcdl with what it imports: modules, and names in them."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "vcdl").rglob("*.py"):
        names = found.setdefault(str(path.relative_to(ROOT)), set())
        for node in statements(path):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def importers(name: str) -> set[str]:
    return {path for path, names in imports().items() if name in names}


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_nothing_else_imports_it(kind: str, name: str) -> None:
    own, *others = files(kind)
    module = ".".join(file_of(own, name).relative_to(ROOT).with_suffix("").parts)
    stray = {path for path in importers(module) - set(others) if not path.startswith(WITHIN.get(kind, ()))}
    assert stray == set(), "CONTRIBUTING.md does not name them"


def test_every_part_has_a_recipe_and_every_recipe_is_tested() -> None:
    assert set(re.findall(r"^### Add an? (.+)$", DOCUMENT, re.MULTILINE)) == {*PARTS, *FACTS, "grid", "job key"}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in FACTS.items() for name in names])
def test_each_name_is_in_the_files_of_its_recipe(kind: str, name: str) -> None:
    *said, tests = [ROOT / file for file in files(kind)]
    for file in said:
        assert re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")), f"{file} does not mention {name}"
    assert tests.is_file()


@pytest.mark.parametrize("refusal", Refusal)
def test_each_refusal_is_given_by_some_check(refusal: Refusal) -> None:
    """Nothing else tells refusals apart by name but who shows a special cure."""
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "vcdl").rglob("*.py") if path.name != "refusal.py")
    assert any(f"Refused(Refusal.{refusal.name}" in text or f"Refusal.{refusal.name}," in text for text in texts)


def test_the_commonest_changes_touch_few_files() -> None:
    assert len(files("key that clients get")) <= 5
    assert len(files("refusal")) <= 4


def existing(column: str) -> list[str]:
    """The files of a grid that exists, from its column; where it has none, the file of the first column."""
    (header,) = re.findall(r"^\| File \| What goes there \|(.+)\|$", DOCUMENT, re.MULTILINE)
    number = [cell.strip() for cell in header.split("|")].index(column)
    return [row[2 + number].strip("`") or row[0] for row in recipe("grid")]


def test_a_grid_touches_at_most_five_files() -> None:
    assert len(recipe("grid")) <= 5


@pytest.mark.parametrize("kind", RUN_KINDS)
def test_each_kind_of_run_is_made_of_the_files_that_the_grids_recipe_names(kind: str) -> None:
    grid, driver, host, command, cli = existing(kind)
    module = importlib.import_module(".".join(Path(grid).with_suffix("").parts))
    grids = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Grid)]
    assert any(found.__module__ == module.__name__ for found in grids)
    assert re.search(r"\b(Loop\.of|run_over)\(", (ROOT / driver).read_text(encoding="utf-8"))
    assert f'{kind} = "vcdl' in (ROOT / host).read_text(encoding="utf-8")
    name = Path(command).stem
    assert (ROOT / command).is_file()
    assert f'"{name}"' in (ROOT / cli).read_text(encoding="utf-8")


def test_nothing_but_its_own_files_knows_a_kind_of_run() -> None:
    """It is named where such a run begins; `LOCAL` also where a folder is made whose kind nobody names."""
    module = importlib.import_module("vcdl.run.kind")
    kinds = {f"vcdl.run.kind.{name}": kind.name for name, kind in vars(module).items() if isinstance(kind, RunKind)}
    assert set(kinds.values()) == set(RUN_KINDS)
    for name, kind in kinds.items():
        command = existing(kind)[3]
        own = {path for path in importers(name) if path.startswith(f"{Path(existing(kind)[1]).parents[0]}/")}
        assert importers(name) - own - {command} <= ({"vcdl/run/folder.py"} if kind == "local" else set())
        assert own or command in importers(name) or RUN_KINDS[kind].driver, "one that is driven is begun by its name"
