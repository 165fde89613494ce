"""A folder that cannot be written: a one-line error that names it, and the documented exit code."""

import os
from pathlib import Path

import pytest

from tests.end_to_end.vcdl_process import vcdl

pytestmark = [pytest.mark.process, pytest.mark.keras]

GOOD = "name: bad\nmodel: {builtin: mlp}\ndata: {dataset: digits, shards: 2}\n"


@pytest.mark.skipif(
    os.geteuid() == 0 and not Path("/sys").is_mount(), reason="needs a read-only file system or no root"
)
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    out = Path("/sys/vcdl") if os.geteuid() == 0 else tmp_path / "read-only"
    if os.geteuid() != 0:
        out.mkdir(mode=0o500)
        out = out / "out"
    done = vcdl("run", tmp_path / "good.yaml", "--out", out)
    (line,) = (line for line in done.stderr.splitlines() if line.strip())
    assert str(out) in line
    assert done.returncode == 6
