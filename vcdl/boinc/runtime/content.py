"""What a runtime for a system that is not this one can be checked for: imports, names, links, libraries."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from vcdl.boinc.runtime.platforms import Platform

_LONGEST_PATH = 200
"""Windows allows 260, of which BOINC's data folder and the project's name take some."""
_GLIBC = re.compile(rb"GLIBC_2\.(\d+)")
_ROOTS = ("numpy", "h5py", "keras", "ssl", "sqlite3", "lzma", "zipimport", "ctypes", "multiprocessing")
_LIBRARY_NAMES = ("*.so", "*.so.*", "*.pyd", "*.dll", "*.dylib", "python3.*")


def glibc_of(folder: Path) -> str:
    """The newest version of the GNU C library that any program or library below the folder names; may be empty."""
    minors = {int(minor) for path in _programs(folder) for minor in _GLIBC.findall(path.read_bytes())}
    return f"2.{max(minors)}" if minors else ""


def _programs(folder: Path) -> Iterator[Path]:
    for pattern in _LIBRARY_NAMES:
        yield from (path for path in folder.rglob(pattern) if path.is_file() and not path.is_symlink())


def faults(folder: Path, platform: Platform, minor: str, backend: str) -> list[str]:
    """What would keep the runtime from working on its platform, as far as can be seen here."""
    found = [
        f"{path.relative_to(folder)}: {why}"
        for path in sorted(folder.rglob("*"))
        if (why := _fault_of(path, folder, platform))
    ]
    imports = Imports(folder, platform, minor)
    found += [f"{module} is imported by {by}, and missing" for module, by in imports.missing((*_ROOTS, backend))]
    return found


def _fault_of(path: Path, folder: Path, platform: Platform) -> str:
    if path.is_symlink():
        if platform.is_windows:
            return "a symbolic link"
        if not path.resolve().is_relative_to(folder.resolve()) or not path.exists():
            return "a link that leads nowhere in the runtime"
    if len(path.relative_to(folder).as_posix()) > _LONGEST_PATH:
        return f"longer than {_LONGEST_PATH} characters"
    return ""


class Imports:
    """Follows the imports that happen when modules are loaded, without loading them."""

    def __init__(self, folder: Path, platform: Platform, minor: str) -> None:
        library = folder / platform.library(minor)
        self._places = (folder / platform.packages(minor), library, library / "lib-dynload", folder / "DLLs")

    def missing(self, roots: tuple[str, ...]) -> list[tuple[str, str]]:
        """Modules that are not there, each with one that imports it; the roots and all that they load are followed."""
        found: set[tuple[str, str]] = set()
        seen: set[str] = set()
        waiting = [(name, "the client") for name in roots]
        while waiting:
            name, by = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            path = self._find(name)
            if path is None:
                if not self._is_standard(name) and not self._is_inside_module(name):
                    found.add((name, by))
            elif path.suffix == ".py":
                waiting.extend((each, name) for each in self._imported(name, path))
        return sorted(found)

    @staticmethod
    def _is_standard(name: str) -> bool:
        """A part of the standard library: some modules are there for one system only."""
        return name.partition(".")[0] in sys.stdlib_module_names

    def _is_inside_module(self, name: str) -> bool:
        """A compiled module may hold modules, and so may one that is no package: `six.moves` of six.py."""
        parents = [self._find(parent) for parent in _with_parents(name)]
        return any(path is not None and path.is_file() and path.name != "__init__.py" for path in parents)

    def _find(self, name: str) -> Path | None:
        for place in self._places:
            path = place.joinpath(*name.split("."))
            for candidate in (path / "__init__.py", path.with_name(f"{path.name}.py")):
                if candidate.is_file():
                    return candidate
            if path.parent.is_dir():
                for pattern in (f"{path.name}.*so", f"{path.name}.*pyd", f"{path.name}/"):
                    if found := next(path.parent.glob(pattern), None):
                        return found
        return None

    def _imported(self, module: str, path: Path) -> Iterator[str]:
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for node in _at_load(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from _with_parents(alias.name)
            elif isinstance(node, ast.ImportFrom):
                base = _absolute(package, node.level, node.module)
                yield from _with_parents(base)
                for alias in node.names:
                    if self._find(f"{base}.{alias.name}") is not None:
                        yield f"{base}.{alias.name}"


def _absolute(package: str, level: int, name: str | None) -> str:
    if level == 0:
        return name or ""
    parts = package.split(".")
    base = parts[: len(parts) - level + 1]
    return ".".join([*base, *([name] if name else [])])


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _at_load(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements that certainly run when a module is loaded: not those in functions, `try` or `if`."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Try | ast.If):
            yield node
            yield from _at_load(node)
