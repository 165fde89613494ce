"""The facts of a prepared run, in a file that another process reads."""

import json
from pathlib import Path
from typing import Any

import pytest

from vcdl.errors import FileUnavailable, RunFolderError
from vcdl.models.footprint import Footprint
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared
from vcdl.wire.layout import Layout, Variable
from vcdl.wire.workunit import Normalisation


def test_a_damaged_file_ends_the_run_and_one_that_this_machine_cannot_read_is_waited_for(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(RunFolderError, match="No such file"):
        Prepared.read(folder)
    folder.prepared_file.write_text("{")
    with pytest.raises(RunFolderError, match="start another with --out"):
        Prepared.read(folder)
    folder.prepared_file.unlink()
    folder.prepared_file.symlink_to("/proc/self/mem")  # nothing is at address 0: reading there is EIO
    with pytest.raises(FileUnavailable, match=r"prepared\.json is there, but this machine cannot read it"):
        Prepared.read(folder)


def test_a_newer_format_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.prepared_file.write_text('{"format": 99, "shards": "in another form"}')
    with pytest.raises(
        RunFolderError, match=r"is of format 99, .* reads format \d+: continue with the version that started"
    ):
        Prepared.read(folder)


WHOLE = Prepared(
    shard_samples=(10, 20), has_test=True, normalisation=Normalisation((0.5,), (0.0, 1.0)),
    layout=Layout((Variable("w", (3, 4), 0), Variable("count", (), 12), Variable("none", (0,), 13))), initial_norm=1.5,
    store_key="key", footprint=Footprint(1.0, 2.0, 13), own_step=(0.1, 0.2), store="store/", statistics_samples=7,
)  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shard_samples", []),
        ("shard_samples", [10, 0]),
        ("shard_samples", ["10"]),
        ("has_test", 1),
        ("normalisation", {"scale": "xx", "offset": [0.0]}),
        ("normalisation", {"scale": [float("nan")], "offset": [0.0]}),
        ("normalisation", {"scale": [1.0], "offset": [0.0], "integers": 1}),
        ("layout", {"variables": [{"path": "w", "shape": [3], "offset": 4}]}),
        ("layout", {"variables": [{"path": "w", "shape": [-3, -4], "offset": 0}]}),
        ("layout", {"variables": [{"path": 5, "shape": [3], "offset": 0}]}),
        ("initial_norm", float("inf")),
        ("initial_norm", -1.0),
        ("store_key", None),
        ("footprint", {"flops_per_sample": 1.0, "bytes_per_sample": float("inf"), "parameters": 3}),
        ("footprint", {"flops_per_sample": 1.0, "bytes_per_sample": 2.0, "parameters": 10**400}),
        ("own_step", [float("nan")]),
        ("statistics_samples", -1),
        ("store", ["store/"]),
    ],
)
def test_facts_that_no_preparation_finds_are_refused(tmp_path: Path, key: str, value: Any) -> None:
    folder = RunFolder(tmp_path)
    WHOLE.write(folder)
    folder.prepared_file.write_text(json.dumps({**json.loads(folder.prepared_file.read_text()), key: value}))
    with pytest.raises(RunFolderError, match="start another with --out") as refused:
        Prepared.read(folder)
    assert "\n" not in str(refused.value)
