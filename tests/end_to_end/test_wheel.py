"""VCDL as strangers get it: two builds have equal bits, and the wheel works in an environment without a checkout."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.end_to_end.vcdl_process import environment
from tests.places import ROOT
from vcdl import __version__

pytestmark = [pytest.mark.process, pytest.mark.keras, pytest.mark.slow]

PACKAGES = Path(pytest.__file__).parents[1]
"""The folder of the packages that tests use."""


def build(source: Path, out: Path) -> dict[str, str]:
    """Build sdist and wheel of a source tree as `make release` does; returns the SHA-256 sum of each file."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(out)]
    subprocess.run(
        command, cwd=source, check=True, capture_output=True, env={**environment(), "SOURCE_DATE_EPOCH": "1800000000"}
    )
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sdist and wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `vcdl` of an environment that holds the wheel and, behind it, the packages of this interpreter."""
    home = tmp_path_factory.mktemp("environment") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    own = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    # A line that is a path adds it without reading the .pth files there: an editable install names its checkout in one.
    (own / "base.pth").write_text(f"{PACKAGES}\n")
    (wheel,) = built.glob("*.whl")
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", home / "bin/python", *install], check=True)
    return home / "bin" / "vcdl"


def ask(program: Path, *arguments: object, cwd: Path) -> str:
    """Run a command of the installed wheel in a folder outside the checkout; returns what it prints."""
    done = subprocess.run(
        [program, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=280, env=environment()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_builds_from_the_sdist_elsewhere_have_equal_bits(built: Path, tmp_path: Path) -> None:
    """What a build may take in by mistake is other here: the folder, times, rights, and files that git ignores."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
    (source / "PKG-INFO").unlink()  # made by the build, and taken for one of the sources by the next one
    (source / "examples/runs/mine").mkdir(parents=True)  # somebody tried an example there: git ignores it
    (source / "examples/runs/mine/journal.db").write_text("")
    for path in source.rglob("*"):
        os.utime(path, (978_307_200, 978_307_200))
        path.chmod(0o700 if path.is_dir() or path.stat().st_mode & 0o100 else 0o600)
    first = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built.iterdir()}
    assert len(first) == 2
    assert build(source, tmp_path / "again") == first


def test_a_stranger_makes_trains_and_looks_at_a_job(installed: Path, tmp_path: Path) -> None:
    where = (
        "import vcdl; from vcdl.files.shipped import shipped_folder; print(vcdl.__file__, shipped_folder('examples'), "
        "sep='\\n')"
    )
    module, examples = ask(installed.with_name("python"), "-c", where, cwd=tmp_path).splitlines()
    assert Path(module).is_relative_to(installed.parents[1])
    assert ask(installed, "--version", cwd=tmp_path) == f"vcdl, version {__version__}\n"
    assert "is in order" in ask(installed, "check", Path(examples) / "digits.yaml", cwd=tmp_path)
    assert "tabular is ready" in ask(installed, "new", "tabular", cwd=tmp_path)
    job = tmp_path / "tabular"
    ask(installed, "run", "job.yaml", "--set", "stop.epochs=1", cwd=job)
    assert (job / "runs/tabular/model.keras").is_file()
    assert ask(installed, "status", cwd=job).startswith("tabular in runs/tabular: finished\n")
    assert "recommended" in ask(installed, "plan", "job.yaml", "runs/tabular", cwd=job)
    assert "--port" in ask(installed, "serve", "--help", cwd=tmp_path)


def test_the_wheel_has_the_files_that_are_not_python(installed: Path) -> None:
    """Each of them lies elsewhere in a checkout, where no test would miss it."""
    (package,) = installed.parents[1].glob("lib/python*/site-packages/vcdl")
    for name in ("boinc_project", "examples", "templates", "wrappers"):
        tracked = subprocess.run(["git", "ls-files", "-z", name], cwd=ROOT, capture_output=True, text=True, check=True)
        wanted = {path for path in tracked.stdout.split("\0") if path}
        assert wanted
        assert {path for path in wanted if not (package / "_shipped" / path).is_file()} == set()


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.nightly
def test_a_release_is_of_the_commit_and_of_nothing_beside_it(tmp_path: Path) -> None:
    """In a clone with the script as it is here: a stray file stops it."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(clone))
    shutil.copy(ROOT / ".ci/release", clone / ".ci/release")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--allow-empty", "--message=Try")
    command = [clone / ".ci/release"]
    environ = {**environment(), "PYTHON": sys.executable}
    (clone / "vcdl/stray.py").write_text("")
    refused = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert (refused.returncode, (clone / "dist").exists()) == (1, False)
    assert "there are changes that no commit has" in refused.stderr
    (clone / "vcdl/stray.py").unlink()
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (clone / "dist").iterdir()}
    kinds = ("-py3-none-any.whl", ".tar.gz", "-requirements.lock", "-notes.md", "-sbom.cdx.json")
    assert names == {"SHA256SUMS", *(f"vcdl-{__version__}{kind}" for kind in kinds)}
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=clone / "dist", check=True)
    assert (clone / f"dist/vcdl-{__version__}-notes.md").read_text().startswith("## ")
