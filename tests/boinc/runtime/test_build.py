"""A runtime holds what the lock says, without what no client imports, and is the same each time."""

import io
import lzma
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boinc.runtime.fake_parts import MINOR, MODULES, make_python, make_wheels
from tests.full_disk import files_limited_to
from vcdl.boinc.runtime.archive import PYTHON, RuntimeFile
from vcdl.boinc.runtime.build import BuildOrder, build_runtime
from vcdl.boinc.runtime.byte_code import compile_ahead
from vcdl.boinc.runtime.packages import lock_of
from vcdl.boinc.runtime.platforms import LINUX, platform_named
from vcdl.client.runtime import PACKAGES
from vcdl.errors import GridError

pytestmark = pytest.mark.process

UNCHECKED_HASH = b"\x01\x00\x00\x00"


def build(order: BuildOrder, output: Path) -> RuntimeFile:
    *_, made = build_runtime(order, output)
    assert isinstance(made, RuntimeFile)
    return made


def contents(path: Path, part: str) -> dict[str, bytes]:
    with tarfile.open(path) as outer:
        packed = outer.extractfile(part)
        assert packed is not None
        content = packed.read()
    if part == PACKAGES:
        content = lzma.decompress(content)
    with tarfile.open(fileobj=io.BytesIO(content)) as inner:
        return dict(_files(inner))


def _files(tar: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    for member in tar.getmembers():
        file = tar.extractfile(member)
        assert file is not None
        yield member.name, file.read()


def test_two_builds_have_the_same_bytes_and_hold_what_a_client_needs(lock: Path, tmp_path: Path) -> None:
    order = BuildOrder(LINUX, "jax", python_archive=make_python(tmp_path / "python.tar.gz"), lock=lock)
    first, second = (build(order, tmp_path / f"{number}.tar") for number in (1, 2))
    assert first.sha256 == second.sha256
    packages = contents(first.path, PACKAGES)
    cached = f"__pycache__/__init__.cpython-{MINOR.replace('.', '')}.pyc"
    assert packages[f"keras/{cached}"][4:8] == UNCHECKED_HASH
    assert {"numpy/__init__.py", "numpy-1.0.dist-info/METADATA"} <= packages.keys()
    assert not {"numpy/tests/test_x.py", "numpy/x.h"} & packages.keys()
    python = contents(first.path, PYTHON)
    assert {"bin/python3", f"lib/python{MINOR}/os.py", "runtime.json"} <= python.keys()
    assert not any(name.startswith(("share", f"lib/python{MINOR}/test")) for name in python)
    assert first.manifest.packages == dict.fromkeys(MODULES, "1.0")
    assert first.manifest.folder == f"lib/python{MINOR}/site-packages"
    assert not list(tmp_path.glob("vcdl-runtime-*")), "nothing is left over"


def test_byte_code_that_a_full_disk_cut_short_is_refused(tmp_path: Path) -> None:
    """Python writes half of it without a word, and the modules of that runtime could be imported nowhere."""
    (tmp_path / "large.py").write_text("".join(f"def f{number}(): return {number}\n" for number in range(200)))
    with (
        files_limited_to(1000),
        pytest.raises(GridError, match=r"of large\.py was cut short: free some space"),
    ):
        compile_ahead(tmp_path, Path(sys.executable), LINUX, MINOR)
    compile_ahead(tmp_path, Path(sys.executable), LINUX, MINOR)


def test_a_wheel_with_another_hash_is_refused(lock: Path, tmp_path: Path) -> None:
    lock.write_text(lock.read_text().replace("--hash=sha256:", "--hash=sha256:00")[:-2])
    order = BuildOrder(LINUX, "jax", python_archive=make_python(tmp_path / "python.tar.gz"), lock=lock)
    with pytest.raises(GridError, match=r"uv could not install the packages for linux-x86_64: .*[Hh]ash"):
        build(order, tmp_path / "x.tar")
    assert not (tmp_path / "x.tar").exists()


def test_links_that_lead_nowhere_and_long_paths_are_refused(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aarch64 = platform_named("linux-aarch64")  # nothing of it is started here
    linked = make_python(tmp_path / "linked.tar.gz", links={f"python/lib/python{MINOR}/x.py": "not_there.py"})
    with pytest.raises(GridError, match=r"x\.py: a link that leads out of the runtime"):
        build(BuildOrder(aarch64, "jax", python_archive=linked, lock=lock), tmp_path / "x.tar")
    long_lock = make_wheels(tmp_path / "long", {**MODULES, "jax": {f"jax/{'deep/' * 40}x.py": ""}})
    monkeypatch.setenv("UV_FIND_LINKS", str(long_lock.parent))
    python = make_python(tmp_path / "python.tar.gz")
    with pytest.raises(GridError, match="longer than 200 characters"):
        build(BuildOrder(aarch64, "jax", python_archive=python, lock=long_lock), tmp_path / "x.tar")


def test_a_runtime_that_does_not_start_is_refused_with_python_s_words(
    tmp_path: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = {**MODULES, "jax": {"jax/__init__.py": "from jax import core\n", "jax/core.py": "import not_there\n"}}
    other = make_wheels(tmp_path / "lacking", lacking)
    monkeypatch.setenv("UV_FIND_LINKS", str(other.parent))
    order = BuildOrder(LINUX, "jax", python_archive=make_python(tmp_path / "python.tar.gz"), lock=other)
    with pytest.raises(GridError, match="would not work: ModuleNotFoundError: No module named 'not_there'"):
        build(order, tmp_path / "x.tar")


@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_cuda_comes_with_the_locks_for_gpus_only(backend: str) -> None:
    assert "\nnvidia-" in lock_of(backend, gpu=True).read_text()
    assert "\nnvidia-" not in lock_of(backend, gpu=False).read_text()


@pytest.mark.parametrize("target", ["../../../etc/passwd", "/etc/passwd"])
def test_a_python_that_leads_out_of_its_folder_is_refused(lock: Path, tmp_path: Path, target: str) -> None:
    python = make_python(tmp_path / "python.tar.gz", links={"python/bin/x": target})
    with pytest.raises(GridError, match="leads out of it"):
        build(BuildOrder(LINUX, "jax", python_archive=python, lock=lock), tmp_path / "x.tar")


def test_a_python_of_another_system_is_refused(lock: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("python/python.exe"))
    order = BuildOrder(LINUX, "jax", python_archive=tmp_path / "p.tar.gz", lock=lock)
    with pytest.raises(GridError, match=r"no bin/python3: it is no Python for linux-x86_64"):
        build(order, tmp_path / "x.tar")


def test_what_is_no_runtime_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"no tar")
    with pytest.raises(GridError, match="is no runtime"):
        RuntimeFile.at(tmp_path / "x.tar")
