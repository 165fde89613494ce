"""Remove the modules that a client never imports from its runtime."""

import shutil
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from vcdl.boinc.runtime.platforms import library

_TOP = ("bin", "lib", "LICENSE*")
"""The parts of a Python's folder that a client needs; headers, manuals and Tcl are not among them."""
_PROGRAMS = ("python3", "python3.[0-9]*")
_NO_PROGRAMS = ("*-config", "*-gdb.py")
_LIBRARIES = ("python3.[0-9]*", "*.so", "*.so.*")
_STANDARD_LIBRARY = """
    test idlelib tkinter turtle.py turtledemo lib2to3 ensurepip pydoc_data config-* distutils venv site-packages
    dist-packages sitecustomize.py
"""
_EXTENSIONS = """
    _tkinter _test* _ctypes_test* _xx* xx* nis* ossaudiodev* readline* _curses* _dbm* _gdbm* _crypt* tcl* tk*
"""
_PACKAGES = """
    tensorflow/include tensorflow/xla_aot_runtime_src tensorflow/compiler/aot numpy/_core/include numpy/_core/lib
    numpy/doc numpy/distutils h5py/tests jaxlib/include google/protobuf/compiler jax/tools jax/_src/test_util.py
"""
_ANYWHERE_FOLDERS = ("tests", "__pycache__", "include")
_ANYWHERE_FILES = "*.pyc *.pyi *.h *.hpp *.a *.lib *.pdb *.c *.cc *.cpp *.cu *.pyx *.pxd *.f90 *.chm"


def prune_python(folder: Path, minor: str) -> None:
    """Remove from an unpacked Python everything that clients never import, including all installed packages.

    Args:
        folder: The unpacked Python.
        minor: Its version, such as `3.12`.
    """
    # At the top list what to keep, because a new Python may add anything there. Below list what to drop, because a
    # module that is missing by mistake would be noticed only on a host.
    _remove_all_except(folder, _TOP)
    _remove_all_except(folder / "bin", _PROGRAMS, _NO_PROGRAMS)
    _remove_all_except(folder / "lib", _LIBRARIES, ("libtcl*", "libtk*"))
    modules = folder / library(minor)
    _drop(modules, _STANDARD_LIBRARY.split())
    if (extensions := modules / "lib-dynload").is_dir():
        _drop(extensions, _EXTENSIONS.split())
    _drop_anywhere(folder)


def prune_packages(packages: Path) -> None:
    """Remove from a folder of packages the files that clients never import."""
    for name in _PACKAGES.split():
        _remove(packages / name)
    _drop_anywhere(packages)


def _remove_all_except(folder: Path, patterns: Sequence[str], but: Sequence[str] = ()) -> None:
    for path in sorted(folder.iterdir()):
        if not _matches(path.name, patterns) or _matches(path.name, but):
            _remove(path)


def _drop(folder: Path, patterns: Sequence[str]) -> None:
    for path in sorted(folder.iterdir()):
        if _matches(path.name, patterns):
            _remove(path)


def _drop_anywhere(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        # Remove a link to a folder as a link, because rmtree would delete the folder to which it leads.
        is_folder = path.is_dir() and not path.is_symlink()
        if _matches(path.name, _ANYWHERE_FOLDERS if is_folder else _ANYWHERE_FILES.split()):
            _remove(path)
        elif is_folder:
            _drop_anywhere(path)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
