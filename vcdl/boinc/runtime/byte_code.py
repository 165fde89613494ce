"""Compile a runtime's modules ahead, so that a client's Python neither compiles nor checks files' times."""

import sys
from pathlib import Path

from vcdl.boinc.runtime.interpreter import fault_of_program, runs_here
from vcdl.boinc.runtime.platforms import Platform
from vcdl.errors import GridError

_COMPILE = """
import marshal, pathlib, py_compile, sys
top = pathlib.Path(sys.argv[1])
for path in sorted(top.rglob("*.py")):
    name = path.relative_to(top).as_posix()
    try:
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        made = py_compile.compile(str(path), dfile=name, doraise=True, invalidation_mode=mode)
    except py_compile.PyCompileError:
        continue  # a template, or code for another Python: no client imports it
    try:
        marshal.loads(pathlib.Path(made).read_bytes()[16:])
    except (EOFError, ValueError):
        sys.exit(f"the byte-code of {name} was cut short: free some space")
"""


def compile_ahead(folder: Path, python: Path, platform: Platform, minor: str) -> None:
    """Write byte code next to each module, reproducibly.

    Args:
        folder: The modules.
        python: The runtime's Python, used if it runs here.
        platform: The runtime's platform.
        minor: Its Python version.

    Raises:
        GridError: No Python here can write this byte code.
    """
    # Byte code is the same on all processors, but differs between minor versions. So any Python of that version can
    # write it for another platform.
    if runs_here(platform):
        program = python
    elif f"{sys.version_info.major}.{sys.version_info.minor}" == minor:
        program = Path(sys.executable)
    else:
        raise GridError(
            f"byte-code for Python {minor} on {platform.name} needs a Python {minor} here: run vcdl with one, "
            "or give an archive with the Python version of this one"
        )
    # Fix the hash seed: the order of sets in marshalled constants depends on it, and the archive must be reproducible.
    if fault := fault_of_program(program, _COMPILE, str(folder), PYTHONHASHSEED="0"):
        raise GridError(f"the Python of the runtime could not compile its modules: {fault}")
