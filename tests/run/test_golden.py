"""A finished run of each released version, frozen in `golden/`: whatever was said of it then is still said.

A release adds `golden/VERSION.tar.xz` (docs/release.md): a run of `job.yaml` of that archive, which keeps all uploads.
`tests/run/frozen/` has a run that continues, `tests/wire/golden/` the workunits, uploads and shards.
"""

import json
import os
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.run_folders import unpacked
from vcdl.cli import exit_code_of
from vcdl.files.version import __version__
from vcdl.job import load_job
from vcdl.run.folder import RunFolder

GOLDEN = sorted((ROOT / "tests/run/golden").glob("*.tar.xz"))
LARGEST_BYTES = 200_000
"""Each release adds one, and none is ever removed."""


@pytest.fixture(params=GOLDEN, ids=lambda path: path.name.removesuffix(".tar.xz"))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    return unpacked(request.param, tmp_path)


def files(folder: Path) -> dict[str, bytes]:
    """Contents of a run's files; those that SQLite keeps beside an open journal are left out."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and "db-" not in path.name}


def test_this_version_has_one_and_all_are_small() -> None:
    assert f"{__version__}.tar.xz" in [path.name for path in GOLDEN]
    assert max(map(os.path.getsize, GOLDEN)) <= LARGEST_BYTES


def test_status_says_what_the_summary_said(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys are only ever added. They are computed from the journal, and not read from the old summary."""
    before = files(folder.path)
    assert exit_code_of(["status", str(folder.path), "--json"]) == 0
    says = json.loads(capsys.readouterr().out)
    summary = json.loads(folder.summary_file.read_text())
    assert says["state"] == "finished"
    assert {key: says[key] for key in summary} == summary
    assert exit_code_of(["status", str(folder.path)]) == 0
    assert f"{summary['workunits']['applied']} done" in capsys.readouterr().out
    assert files(folder.path) == before


def test_its_job_file_begins_a_new_run(folder: RunFolder) -> None:
    """A job file of then is in order now, and so is the one that a run keeps, with all defaults of then."""
    assert load_job(folder.job_file).stop.epochs == 3


@pytest.mark.keras
@pytest.mark.slow
def test_it_is_proven_and_exported(folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All uploads are read and folded again to the same bits; plain Keras loads old and new model alike."""
    assert exit_code_of(["verify", str(folder.path)]) == 0
    says = capsys.readouterr().out
    assert "12 of 12 folded again from kept uploads, from version 0 on" in says
    assert "12 of 12 equal to them, to the last bit" in says
    assert exit_code_of(["export", str(folder.path), "-o", str(tmp_path / "again.keras")]) == 0
    import keras

    then, now = (keras.models.load_model(path) for path in (folder.path / "model.keras", tmp_path / "again.keras"))
    assert [weights.tolist() for weights in then.get_weights()] == [weights.tolist() for weights in now.get_weights()]
