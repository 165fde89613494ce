"""Small wheels, their lock and a Python, from which runtimes are made as from real ones."""

import base64
import hashlib
import io
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
PURE = "py3-none-any"
MODULES: dict[str, dict[str, str]] = {
    "numpy": {"numpy/__init__.py": "x = 1\n", "numpy/tests/test_x.py": "y = 2\n", "numpy/x.h": "int x;\n"},
    "h5py": {"h5py/__init__.py": "import numpy\nfrom . import _file\n", "h5py/_file.py": "import os\n"},
    "keras": {"keras/__init__.py": "import h5py\n\ndef f():\n    import not_needed\n"},
    "jax": {"jax/__init__.py": "try:\n    import extra\nexcept ImportError:\n    pass\n"},
}


def make_wheels(folder: Path, modules: Mapping[str, Mapping[str, str]] = MODULES) -> Path:
    """Write a wheel for each package, and a lock that names them; returns the lock."""
    folder.mkdir()
    lines = []
    for name, files in modules.items():
        path = folder / f"{name}-1.0-{PURE}.whl"
        info = f"{name}-1.0.dist-info"
        contents = {
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {PURE}\n",
        }
        with zipfile.ZipFile(path, "w") as wheel:
            for inside, text in contents.items():
                wheel.writestr(inside, text)
            wheel.writestr(f"{info}/RECORD", "".join(f"{each},sha256={_hash(contents[each])},\n" for each in contents))
        lines.append(f"{name}==1.0 \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n")
    lock = folder / "fake.lock"
    lock.write_text("".join(lines))
    return lock


def _hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def make_python(path: Path, extra: Mapping[str, str] | None = None, links: Mapping[str, str] | None = None) -> Path:
    """Write a tar file with the layout of a relocatable Python, whose program is the running one."""
    files = {
        "python/bin/python3": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        f"python/lib/python{MINOR}/os.py": "x = 1\n",
        f"python/lib/python{MINOR}/test/test_os.py": "x = 1\n",
        "python/share/man/python.1": "manual\n",
        **(extra or {}),
    }
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.mode, info.size = (0o755 if "/bin/" in name else 0o644), len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return path
