"""The picture of the folders in docs/architecture.md against the imports."""

import ast
import pkgutil
import re
from collections.abc import Iterable
from graphlib import TopologicalSorter

import pytest

from tests.places import DOCS, ROOT
from tests.statements import statements
from vcdl.run.kind import RUN_KINDS


def rows_of(column: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line)[0].split() for line in column.splitlines()]


def floors(rows: list[list[str]]) -> dict[str, int]:
    return {name: floor for floor, names in enumerate(reversed(rows)) for name in names}


PICTURE = {
    folder.strip() or "vcdl": column
    for folder, column in re.findall(
        r"```column( \w+)?\n(.*?)```", (DOCS / "architecture.md").read_text(encoding="utf-8"), re.DOTALL
    )
}
ROWS = rows_of(PICTURE["vcdl"])
FLOOR = floors(ROWS)
ABOVE_ALL = {"__init__", "__main__"}
LOOSE_AT_MOST = 6
OF_RUN_AT_MOST = 18
"""Modules of `run/`, which any part of a run could be put into: one more is a question, where else it belongs."""


def folder_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def imports() -> set[tuple[str, str, str]]:
    """(file, its folder, a folder that it imports from), wherever in the file the import stands."""
    found = set()
    for file in sorted((ROOT / "vcdl").rglob("*.py")):
        path = file.relative_to(ROOT).with_suffix("")
        for node in statements(file):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "vcdl":
                found.add((str(path), folder_of(".".join(path.parts)), folder_of(node.module)))
    return found


def test_the_picture_has_every_folder_once() -> None:
    folders = {path.stem for path in (ROOT / "vcdl").iterdir() if not path.name.startswith(("__pycache__", "_shipped"))}
    assert sorted(FLOOR) == sorted(folders - ABOVE_ALL - {"py"})
    assert sum(map(len, ROWS)) == len(FLOOR)


def test_every_import_goes_down_the_column() -> None:
    up = [
        f"{file} imports {imported}"
        for file, folder, imported in sorted(imports())
        if folder != imported and not {folder, imported} & ABOVE_ALL and FLOOR[imported] >= FLOOR[folder]
    ]
    assert up == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for types alone count too: who reads a module must know what they name."""
    files = sorted((ROOT / "vcdl").rglob("*.py"))
    modules = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}
    imported: dict[str, set[str]] = {module: set() for module in modules}
    for module, file in modules.items():
        for node in statements(file):
            if isinstance(node, ast.ImportFrom) and node.module:
                named = {f"{node.module}.{name.name}" for name in node.names}
                imported[module] |= named & modules.keys() or {node.module}
    TopologicalSorter(imported).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("top", sorted(PICTURE.keys() - {"vcdl"}))
def test_the_floors_of_a_large_folder_hold_too(top: str) -> None:
    folder, floor = ROOT / "vcdl" / top, floors(rows_of(PICTURE[top]))
    parts = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert sorted(floor) == sorted(parts - ABOVE_ALL)
    up = []
    for file in sorted(folder.rglob("*.py")):
        own = file.relative_to(folder).with_suffix("").parts[0]
        for node in statements(file):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"vcdl.{top}."):
                imported = node.module.split(".")[2]
                if own not in ABOVE_ALL and imported != own and floor[imported] >= floor[own]:
                    up.append(f"{file.relative_to(folder)} imports {imported}")
    assert up == []


def doubled(places: Iterable[tuple[object, str]]) -> dict[object, list[str]]:
    """The keys that stand at several places."""
    found: dict[object, list[str]] = {}
    for key, place in places:
        found.setdefault(key, []).append(place)
    return {key: where for key, where in found.items() if len(where) > 1}


def test_a_layer_has_no_two_files_of_one_name() -> None:
    """Clouds are the exception: the same parts behind one interface, which have the same names."""
    files = [path.relative_to(ROOT / "vcdl") for path in sorted((ROOT / "vcdl").rglob("*.py"))]
    clouds = {path.parent for path in files if path.name == "provider.py" and len(path.parts) > 2}
    own = [path for path in files if path.stem not in ABOVE_ALL and path.parent not in clouds]
    assert doubled(((path.parts[0], path.name), str(path)) for path in own) == {}
    assert len(clouds) == 2


def test_a_public_class_has_its_name_alone() -> None:
    classes = [
        (node.name, str(file.relative_to(ROOT)))
        for file in sorted((ROOT / "vcdl").rglob("*.py"))
        for node in statements(file)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert len(classes) > 300
    assert doubled(classes) == {}


def test_few_modules_lie_loose() -> None:
    loose = {path.name for path in (ROOT / "vcdl").glob("*.py")} - {f"{name}.py" for name in ABOVE_ALL}
    assert len(loose) <= LOOSE_AT_MOST, sorted(loose)


def test_run_is_no_drawer() -> None:
    modules = {path.name for path in (ROOT / "vcdl" / "run").glob("*.py")} - {"__init__.py"}
    assert len(modules) <= OF_RUN_AT_MOST, sorted(modules)


@pytest.mark.parametrize("name", RUN_KINDS)
def test_every_kind_of_run_has_the_driver_that_it_names(name: str) -> None:
    driver = RUN_KINDS[name].driver
    if driver is not None:
        assert callable(pkgutil.resolve_name(driver))
