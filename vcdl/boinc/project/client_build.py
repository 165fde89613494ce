"""Build the client as one file: a zipapp of exactly the modules it needs, with equal bytes on every machine."""

import ast
import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from vcdl.client.newest import KEY_FILE
from vcdl.files.atomic import whole_file

ENTRY = "vcdl.client.boinc"
_KEY = f"vcdl/client/{KEY_FILE}"
_ROOT = Path(__file__).parents[3]
_MAIN = f"from {ENTRY} import run\n\nrun()\n"
_SHEBANG = b"#!/usr/bin/env python3\n"
_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can store."""
_MODE = 0o100644
"""The mode of files in the zipapp, fixed so that equal sources give equal bytes."""


def build_client(path: Path, project_key: str = "") -> str:
    """Write the zipapp, and return its hex SHA-256.

    Args:
        path: The file to write.
        project_key: The public key of the project's weights, as JSON.

    Raises:
        RunFolderError: The file cannot be written.
    """
    sources = {"__main__.py": _MAIN.encode()}
    if project_key:
        sources[_KEY] = project_key.encode()
    # Include only modules that the client imports: volunteers download them, and others need packages that clients
    # lack.
    for module in client_modules():
        source = _source(module)
        sources[source.relative_to(_ROOT).as_posix()] = source.read_bytes()
    with whole_file(path) as temporary:
        with temporary.open("wb") as file:
            file.write(_SHEBANG)
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:  # deflate differs between versions of zlib
                for name in sorted(sources):
                    archive.writestr(_entry(name), sources[name])
        temporary.chmod(0o755)
        return hashlib.sha256(temporary.read_bytes()).hexdigest()


def client_modules() -> list[str]:
    """Return all modules of vcdl that the client imports, directly or not, at the top or inside functions; sorted."""
    found: set[str] = set()
    waiting = [ENTRY]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting.extend(_find_imports(module))
    return sorted(found)


def _find_imports(module: str) -> list[str]:
    """Return the modules of vcdl that a module imports, with their packages."""
    names = [module]
    for node in _walk_executed(ast.parse(_source(module).read_bytes())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # In `from package import name`, the name may be a module or an object in one. Try both; a name without a
            # file is dropped below.
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    parents = [name.rpartition(".")[0] for name in names]
    return [name for name in names + parents if name.partition(".")[0] == "vcdl" and _source(name).is_file()]


def _walk_executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its descendants, without code that only type checkers read."""
    yield node
    # Skip imports below TYPE_CHECKING, which would add modules that the client never executes.
    only_for_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    for child in () if only_for_types else ast.iter_child_nodes(node):
        yield from _walk_executed(child)


def _source(module: str) -> Path:
    """Return the path of a module's source, which does not exist for a name inside a module."""
    path = _ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.create_system = 3  # Unix, on every machine
    entry.external_attr = _MODE << 16
    return entry
