"""The client is one file: the same bytes wherever it is built, everything that it needs in it, and nothing of
the server.
"""

import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import vcdl
from vcdl.boinc.project.client_build import build_client, client_modules
from vcdl.commands.client import command

pytestmark = pytest.mark.process

_MODULES = """
    vcdl vcdl.client vcdl.client.__main__ vcdl.client.allowed vcdl.client.batches vcdl.client.boinc
    vcdl.client.boinc_supervisor vcdl.client.channels vcdl.client.checkpoint vcdl.client.compile
    vcdl.client.compiled vcdl.client.init_data vcdl.client.inputs vcdl.client.loops vcdl.client.memory
    vcdl.client.metrics vcdl.client.model vcdl.client.model_json vcdl.client.moments vcdl.client.muon vcdl.client.newest
    vcdl.client.optimizers vcdl.client.own_code vcdl.client.parts vcdl.client.process_age vcdl.client.processors
    vcdl.client.residual
    vcdl.client.resources vcdl.client.runtime vcdl.client.slot vcdl.client.stage_clock vcdl.client.supervisor
    vcdl.client.task vcdl.client.time_share vcdl.client.train vcdl.client.trainer vcdl.client.unneeded
    vcdl.client.wrapper_supervisor vcdl.codecs vcdl.codecs.base vcdl.codecs.bfloat16 vcdl.codecs.choose
    vcdl.codecs.encoded_file vcdl.codecs.encoding vcdl.codecs.float16 vcdl.codecs.float32 vcdl.codecs.int8
    vcdl.codecs.logarithmic vcdl.codecs.top_k vcdl.codecs.two_bits vcdl.errors vcdl.errors.backoff vcdl.files
    vcdl.files.atomic vcdl.files.lock vcdl.files.version vcdl.wire vcdl.wire.checksum vcdl.wire.fields vcdl.wire.frozen
    vcdl.wire.hdf5_form vcdl.wire.inputs vcdl.wire.jpeg vcdl.wire.layout vcdl.wire.newest vcdl.wire.normalise
    vcdl.wire.npz_form vcdl.wire.params vcdl.wire.taken vcdl.wire.weights vcdl.wire.workunit
"""
SUBCLASS_OF_KERAS = "vcdl.client.muon"
MODULES = _MODULES.split()
"""A new name here is code that every volunteer runs: is it meant to?"""


def test_the_client_holds_what_it_imports_and_nothing_else(tmp_path: Path) -> None:
    assert client_modules() == sorted(MODULES)
    build_client(tmp_path / "client.pyz")
    names = zipfile.ZipFile(tmp_path / "client.pyz").namelist()
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in names}
    assert modules == {"__main__", *MODULES}


def test_the_client_is_the_same_bytes_wherever_and_whenever_it_is_built(tmp_path: Path) -> None:
    first = build_client(tmp_path / "first.pyz")
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(Path(vcdl.__file__).parent, elsewhere / "vcdl", ignore=shutil.ignore_patterns("__pycache__"))
    for path in elsewhere.rglob("*.py"):
        os.utime(path, (time.time() - 10**7,) * 2)
        path.chmod(0o600)
    program = (
        "import pathlib; from vcdl.boinc.project.client_build import build_client; "
        "print(build_client(pathlib.Path('second.pyz')))"
    )
    environment = {**os.environ, "PYTHONPATH": str(elsewhere), "TZ": "Asia/Tokyo"}
    second = subprocess.check_output([sys.executable, "-c", program], cwd=tmp_path, env=environment, text=True)
    assert second.strip() == first
    assert (tmp_path / "first.pyz").read_bytes() == (tmp_path / "second.pyz").read_bytes()


def test_everything_in_the_client_can_be_imported_with_nothing_beside_it(tmp_path: Path) -> None:
    """With the sources out of reach, as on a volunteer's machine; and quickly: NumPy is the heaviest of it."""
    build_client(tmp_path / "client.pyz")
    program = (
        "import sys, importlib\nsys.path.insert(0, 'client.pyz')\n"
        f"for name in {[name for name in MODULES if name != SUBCLASS_OF_KERAS]!r}: importlib.import_module(name)\n"
        "import vcdl\nassert 'client.pyz' in vcdl.__file__, vcdl.__file__\n"
        "heavy = 'keras tensorflow pydantic yaml click rich MySQLdb redis lxml'.split()\n"
        "print(*[name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    output = tmp_path / "vcdl_client.pyz"
    result = CliRunner().invoke(command, ["build", "-o", str(output)])
    assert result.exit_code == 0
    assert (
        result.output == f"client {output} ({_size(output)}, {len(MODULES)} modules)\nsha256 {build_client(output)}\n"
    )


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1024:.1f} KiB"
