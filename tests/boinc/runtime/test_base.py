"""The base of a container is small, the same each time, and lets the launcher work; real mmdebstrap, real packages."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.places import ROOT
from vcdl.boinc.runtime.base import build_base, platform_of_base
from vcdl.boinc.runtime.platforms import LINUX
from vcdl.errors import GridError

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("mmdebstrap") is None:
        if os.environ.get("CI"):
            pytest.fail("there is no mmdebstrap here")
        pytest.skip("there is no mmdebstrap here")
    made = tmp_path_factory.mktemp("base") / "base.tar.gz"
    build_base(LINUX, made)
    return made


def test_a_base_is_small_and_the_same_each_time(base: Path, tmp_path: Path) -> None:
    build_base(LINUX, tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == base.read_bytes()
    assert base.stat().st_size < 5 << 20
    assert platform_of_base(base) == LINUX
    with tarfile.open(base) as tar:
        names = tar.getnames()
        assert {"kept", "app", "projects", "tmp"} <= {each.name for each in tar if each.isdir() and each.mode == 0o1777}
    assert not [name for name in names if "apt" in name.split("/")], "the mirror of this machine is nobody's business"
    assert {"usr/share/doc/libc6/copyright", "usr/share/doc/busybox-static/copyright"} <= set(names)


def test_a_base_has_every_program_that_the_launcher_uses(base: Path) -> None:
    with tarfile.open(base) as tar:
        there = {Path(name).name for name in tar.getnames() if name.startswith("bin/")}
    launcher = (ROOT / "wrappers" / "linux" / "vcdl_client").read_text()
    used = {name for name in ("head", "tail", "tr", "sed", "tar", "rm", "mkdir", "find") if f"{name} " in launcher}
    assert used | {"sh", "gzip"} <= there


def test_a_program_of_another_machine_s_c_library_runs_in_a_base(base: Path, tmp_path: Path) -> None:
    with tarfile.open(base) as tar:
        tar.extractall(tmp_path, filter="tar")
    shutil.copy("/bin/true", tmp_path / "bin" / "true")
    subprocess.run(["unshare", "--user", "--map-root-user", "--root", tmp_path, "/bin/true"], check=True)


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b not packed", b"no gzip"])
def test_what_is_no_base_is_refused_in_words(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(GridError, match=r"is no base of a container: make one with vcdl client base"):
        platform_of_base(tmp_path / "x")
