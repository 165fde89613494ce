"""BOINC's docker_wrapper and a base become app versions of plan class vcdl_docker, kept, and taken out again."""

import io
import re
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.boinc.project.made_project import MadeProject
from tests.boinc.project.test_install_runtimes import LINUX, make_runtime, offered, with_platforms
from vcdl.boinc.project.container import platform_of_wrapper, project_folder
from vcdl.boinc.project.uninstall import plan_removal
from vcdl.boinc.runtime.archive import RuntimeFile
from vcdl.boinc.runtime.base import MARK
from vcdl.errors import GridError

pytestmark = pytest.mark.boinc

WINDOWS = "windows_x86_64"
WRAPPERS = {
    LINUX: b"\x7fELF" + bytes(14) + struct.pack("<H", 62),
    "aarch64-unknown-linux-gnu": b"\x7fELF" + bytes(14) + struct.pack("<H", 183),
    WINDOWS: b"MZ" + bytes(118) + b"PE\0\0" + struct.pack("<H", 0x8664),
    "x86_64-apple-darwin": struct.pack("<II", 0xFEEDFACF, 0x01000007),
    "arm64-apple-darwin": struct.pack("<II", 0xFEEDFACF, 0x0100000C),
}
__all__ = ["make_runtime"]


def made_file(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Stands in for a base: its mark and nothing else."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        mark = tarfile.TarInfo(MARK)
        mark.size = len(b"linux-x86_64\n")
        tar.addfile(mark, io.BytesIO(b"linux-x86_64\n"))
    return made_file(tmp_path, "base.tar.gz", packed.getvalue())


@pytest.mark.parametrize("platform", WRAPPERS)
def test_a_wrapper_s_platform_is_read_from_its_header(platform: str, tmp_path: Path) -> None:
    assert platform_of_wrapper(made_file(tmp_path, "docker_wrapper", WRAPPERS[platform])) == platform


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF" + bytes(30), b"\xca\xfe\xba\xbe" + bytes(60)])
def test_what_is_no_wrapper_is_refused(content: bytes, made: MadeProject, tmp_path: Path) -> None:
    before = made.contents()
    with pytest.raises(GridError, match=r"is neither a base made by vcdl client base nor BOINC's docker_wrapper"):
        made.install(containers=(made_file(tmp_path, "x", content),))
    assert made.contents() == before


def test_a_container_needs_a_base_and_a_runtime(
    made: MadeProject, make_runtime: Callable[..., RuntimeFile], base: Path, tmp_path: Path
) -> None:
    wrapper = made_file(tmp_path, "w.exe", WRAPPERS[WINDOWS])
    with pytest.raises(GridError, match=r"windows_x86_64 needs a base: vcdl client base --platform linux-x86_64"):
        made.install(containers=(wrapper,), runtimes=(make_runtime().path,))
    with pytest.raises(GridError, match=r"windows_x86_64 needs a runtime: give one of linux-x86_64 with --runtime"):
        made.install(containers=(wrapper, base))


def test_windows_gets_an_app_version_whose_container_has_linux_inside(
    made: MadeProject, make_runtime: Callable[..., RuntimeFile], base: Path, tmp_path: Path
) -> None:
    with_platforms(made, WINDOWS)
    wrapper, runtime = made_file(tmp_path, "w.exe", WRAPPERS[WINDOWS]), make_runtime()
    made.install(containers=(wrapper, base), runtimes=(runtime.path,), threads=3)
    assert offered(made) == [(100, WINDOWS, "vcdl_docker"), (100, LINUX, "vcdl_mt")]
    (folder,) = (made.path / "apps" / "vcdl" / "1.00").glob(f"{WINDOWS}*")
    files = dict(
        re.findall(r"<physical_name>(.*)</physical_name>\n *<logical_name>(.*)</", (folder / "version.xml").read_text())
    )
    assert sorted(files.values()) == [
        *("Dockerfile", "job.toml", "vcdl_base.tar.gz", "vcdl_client", "vcdl_client.pyz", "vcdl_runtime.tar")
    ]
    copied = re.findall(r"<logical_name>(.*)</logical_name>\n *<copy_file/>", (folder / "version.xml").read_text())
    assert copied == ["Dockerfile", "job.toml", "vcdl_base.tar.gz"], "docker_wrapper follows no <soft_link>"
    (main,) = folder.glob("*_docker.exe")
    assert main.read_bytes() == WRAPPERS[WINDOWS]
    (settings,) = folder.glob("*_job.toml")
    assert f'project_dir_mount = "/projects/{project_folder(made.project.master_url)}:ro"' in settings.read_text()
    assert "@" not in re.sub(r"#.*", "", settings.read_text()), "a blank that was not filled in"
    spec = (made.path / "plan_class_spec.xml").read_text()
    assert re.search(r"<name>vcdl_docker</name>\s*<docker/>\s*<min_ncpus>1</min_ncpus>\s*<max_threads>3<", spec)
    for path in (wrapper, base):
        path.unlink()
    assert made.install() == [], "what was given is kept"


def test_a_container_can_be_withdrawn_and_leaves_no_trace(
    made: MadeProject, make_runtime: Callable[..., RuntimeFile], base: Path, tmp_path: Path
) -> None:
    before = made.contents()
    with_platforms(made, WINDOWS)
    wrappers = [made_file(tmp_path, name, WRAPPERS[name]) for name in (LINUX, WINDOWS)]
    made.install(containers=(*wrappers, base), runtimes=(make_runtime().path,))
    with pytest.raises(GridError, match="there are no containers for windows: expected some of"):
        made.install(without_containers=("windows",))
    said = made.install(without_containers=(WINDOWS,))
    assert f"removed vcdl/runtimes/docker_wrapper_{WINDOWS}" in said
    assert [each[1:] for each in offered(made)] == [(LINUX, ""), (LINUX, "vcdl_docker")]
    removal = plan_removal(made.project, made.database, force=False, delete_runs=False)
    list(removal.carry_out(made.database))
    assert made.contents() == before


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("http://server.vcdl.test/vcdl/", "server.vcdl.test_vcdl"),
        ("https://boinc.example.org/", "boinc.example.org"),
        ("https://example.org:8443/a-b/~c/", "example.org_8443_a-b__c"),
    ],
)
def test_a_project_s_folder_has_the_name_that_boincs_client_gives_it(url: str, folder: str) -> None:
    assert project_folder(url) == folder
