"""Runtimes are published as signed files of the app versions of their platforms, kept, and taken out again."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.boinc.project.made_project import MadeProject
from vcdl.boinc.project.jobs_page import JobsPage
from vcdl.boinc.project.pages import JOBS_FILE
from vcdl.boinc.project.uninstall import plan_removal
from vcdl.boinc.runtime.archive import ArchiveManifest, RuntimeFile, pack
from vcdl.errors import GridError

pytestmark = pytest.mark.boinc

LINUX = "x86_64-pc-linux-gnu"


@pytest.fixture
def make_runtime(tmp_path: Path) -> Callable[..., RuntimeFile]:
    """Write a small runtime for a platform."""

    def make(platform: str = "linux-x86_64", gpu: bool = False, python: str = "") -> RuntimeFile:
        scratch = tmp_path / f"{platform}{gpu}{python}"
        packages = scratch / "in" / "packages"
        packages.mkdir(parents=True)
        (packages / "keras.py").write_text("x = 1\n")
        (scratch / "in" / "python").write_text(python)
        manifest = ArchiveManifest(
            platform, "jax", gpu, "3.12", {"keras": "1.0"}, "packages", (), glibc="", python_bytes=1, packages_bytes=1
        )
        pack(manifest, scratch / "in", scratch, scratch / "runtime.tar", level=0)
        return RuntimeFile.at(scratch / "runtime.tar")

    return make


def with_platforms(made: MadeProject, *platforms: str) -> None:
    """Add them to the database, as xadd does from the project.xml of a real project."""
    for name in platforms:
        made.standin.insert("platform", create_time=0, name=name, user_friendly_name=name)


def offered(made: MadeProject) -> list[tuple[int, str, str]]:
    rows = made.standin.rows(
        "SELECT v.version_num, p.name, v.plan_class FROM app_version v JOIN platform p ON p.id = v.platformid "
        "WHERE v.deprecated = 0 ORDER BY p.name, v.plan_class"
    )
    return [(row["version_num"], row["name"], row["plan_class"]) for row in rows]


def downloads(made: MadeProject) -> list[str]:
    return sorted(path.name for path in (made.path / "download").glob("vcdl_runtime*"))


def test_a_runtime_is_signed_and_a_second_install_keeps_it(
    made: MadeProject, make_runtime: Callable[..., RuntimeFile]
) -> None:
    runtime = make_runtime()
    made.install(runtimes=(runtime.path,))
    assert offered(made) == [(100, LINUX, "")], "whoever needs a runtime gets no GPU tasks without one for GPUs"
    assert downloads(made) == [runtime.name]
    (row,) = made.standin.rows("SELECT xml_doc FROM app_version")
    xml = bytes(row["xml_doc"]).decode()
    assert f"<file_name>{runtime.name}</file_name>\n    <open_name>vcdl_runtime.tar</open_name>" in xml
    runtime.path.unlink()
    assert made.install() == []


def test_the_page_of_jobs_tells_volunteers_what_a_runtime_costs_them(
    made: MadeProject, make_runtime: Callable[..., RuntimeFile]
) -> None:
    (made.path / "html" / "user").mkdir(parents=True, exist_ok=True)
    made.install(runtimes=(make_runtime().path, make_runtime(gpu=True).path))
    JobsPage(made.project).write_when_due()
    plain, gpu = json.loads((made.path / JOBS_FILE).read_text())["runtimes"]
    assert (plain["system"], gpu["system"]) == ("linux-x86_64", "linux-x86_64, with a GPU")
    assert 0 < plain["down_mb"] <= plain["disk_mb"]


def test_another_client_keeps_the_runtimes_name_and_another_runtime_gets_another(
    made: MadeProject, make_runtime: Callable[..., RuntimeFile]
) -> None:
    first, second = make_runtime(), make_runtime(python="newer")
    made.install(runtimes=(first.path,))
    made.install(threads=2)
    assert downloads(made) == [first.name], "hosts have it already"
    made.install(runtimes=(second.path,))
    assert downloads(made) == sorted([first.name, second.name])
    assert offered(made) == [(101, LINUX, "vcdl_mt")]
    made.install(without_runtimes=("linux-x86_64",))
    assert offered(made)[0][1:] == (LINUX, "vcdl_cuda")
    assert not list((made.path / "vcdl" / "runtimes").iterdir())


def test_a_runtime_that_was_lost_from_download_is_put_back(
    made: MadeProject, make_runtime: Callable[..., RuntimeFile]
) -> None:
    runtime = make_runtime()
    made.install(runtimes=(runtime.path,))
    (made.path / "download" / runtime.name).write_bytes(b"damaged")
    assert made.install() == [f"renewed download/{runtime.name}"]


def test_gpus_and_other_systems_get_app_versions_of_their_own(
    made: MadeProject, make_runtime: Callable[..., RuntimeFile]
) -> None:
    with_platforms(made, "aarch64-unknown-linux-gnu")
    runtimes = [make_runtime(), make_runtime(gpu=True), make_runtime("linux-aarch64")]
    made.install(runtimes=tuple(runtime.path for runtime in runtimes))
    assert offered(made) == [
        (100, "aarch64-unknown-linux-gnu", ""),
        (100, LINUX, ""),
        (100, LINUX, "vcdl_cuda"),
    ]
    assert len(downloads(made)) == 3


def test_a_runtime_of_a_platform_that_vcdl_no_longer_has_is_taken_out_by_an_upgrade(
    made: MadeProject, make_runtime: Callable[..., RuntimeFile]
) -> None:
    """Until December 2026 there were runtimes of Windows and macOS, with BOINC's wrapper beside them."""
    folder = made.path / "vcdl" / "runtimes"
    folder.mkdir(parents=True)
    old = make_runtime("windows-x86_64").path.rename(folder / "windows-x86_64.tar")
    (folder / "wrapper.exe").write_bytes(b"MZ")
    said = made.install()
    assert {"removed vcdl/runtimes/windows-x86_64.tar", "removed vcdl/runtimes/wrapper.exe"} <= set(said)
    assert not old.exists()
    with pytest.raises(GridError, match="there is no platform windows-x86_64: choose from linux-x86_64, linux-aarch64"):
        made.install(runtimes=(make_runtime("windows-x86_64", python="new").path,))


def test_uninstall_leaves_no_trace_of_runtimes(made: MadeProject, make_runtime: Callable[..., RuntimeFile]) -> None:
    before = made.contents()
    made.install(runtimes=(make_runtime().path,))
    removal = plan_removal(made.project, made.database, force=False, delete_runs=False)
    list(removal.carry_out(made.database))
    assert made.contents() == before


def test_a_file_that_is_no_runtime_changes_nothing(made: MadeProject, tmp_path: Path) -> None:
    before = made.contents()
    (tmp_path / "x.tar").write_bytes(b"no tar")
    with pytest.raises(GridError, match="is no runtime"):
        made.install(runtimes=(tmp_path / "x.tar",))
    assert made.contents() == before
