"""The launcher for Windows, run by Wine's cmd.exe: the one piece of Windows that can be had on Linux.

Python and tar are stand-ins that MinGW compiles. Skipped without Wine (apt: wine, wine64) and gcc-mingw-w64-x86-64.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT

pytestmark = pytest.mark.process

LAUNCHER = ROOT / "wrappers" / "windows" / "vcdl_client.cmd"
COMPILER = "x86_64-w64-mingw32-gcc"
PYTHON = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int count, char **arguments) {  /* says how it was called */
    FILE *calls = fopen(getenv("CALLS"), "a");
    for (int i = 1; i < count; i++) fprintf(calls, "%s|", strlen(arguments[i]) > 100 ? "..." : arguments[i]);
    fprintf(calls, "\n");
    fclose(calls);
    if (count == 3 && !strcmp(arguments[1], "-c")) return getenv("ENDS") ? atoi(getenv("ENDS")) : 0;
    return strcmp(arguments[1], "-I") || strcmp(arguments[2], "-S") ? 7 : 0;
}
"""
TAR = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>
int main(int count, char **arguments) {  /* -xOf ARCHIVE FILE, and -xzf - -C FOLDER of what that gives */
    char text[2000];
    if (!strcmp(arguments[1], "-xOf")) {
        FILE *archive = fopen(arguments[2], "rb");
        return archive == NULL || puts("python.tar.gz") < 0;
    }
    if (!fgets(text, sizeof text, stdin)) return 2;
    snprintf(text, sizeof text, "%s\\python.exe", arguments[4]);
    return !CopyFileA(getenv("STAND_IN"), text, TRUE);
}
"""
needs_wine = pytest.mark.skipif(
    shutil.which("wine") is None or shutil.which(COMPILER) is None, reason="wine and MinGW are not installed"
)


class Windows:
    """A project's folder and a slot, on a machine with Wine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project, self.slot, self.calls = root / "project", root / "slot", root / "calls"
        self.python = root / "python.exe"
        self.project.mkdir()
        self.slot.mkdir()
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "VCDL_PYTHON"},
            "WINEPREFIX": str(root / "wine"), "WINEDEBUG": "-all",
            "CALLS": str(self.calls), "STAND_IN": str(self.python),
        }  # fmt: skip
        shutil.copy(LAUNCHER, self.slot)
        (self.slot / "vcdl_client.pyz").touch()
        subprocess.run(["wineboot", "--init"], env=self.environment, check=True, capture_output=True, timeout=200)
        self._compile(PYTHON, self.python)
        self._compile(TAR, root / "wine" / "drive_c" / "windows" / "system32" / "tar.exe")

    def _compile(self, program: str, path: Path) -> None:
        subprocess.run([COMPILER, "-x", "c", "-", "-o", path], input=program.encode(), check=True, capture_output=True)

    def launch(self, **variables: object) -> tuple[int, str, list[str]]:
        """Exit code, messages, and how Python was called."""
        self.calls.unlink(missing_ok=True)
        done = subprocess.run(
            ["wine", "cmd", "/c", "vcdl_client.cmd", "--wrapper", "--nthreads", "2"],
            cwd=self.slot, env={**self.environment, **{name: str(value) for name, value in variables.items()}},
            capture_output=True, text=True, check=False, timeout=100,
        )  # fmt: skip
        return done.returncode, done.stderr, self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windows]:
    made = Windows(tmp_path_factory.mktemp("windows"))
    yield made
    subprocess.run(["wineserver", "--kill"], env=made.environment, check=False)


def test_its_lines_end_as_cmd_needs_them() -> None:
    """cmd.exe misses labels in a file whose lines end otherwise."""
    content = LAUNCHER.read_bytes()
    assert content.count(b"\n") == content.count(b"\r\n") > 0


@needs_wine
def test_without_a_python_it_says_so(windows: Windows) -> None:
    status, errors, calls = windows.launch()
    assert (status, calls) == (206, [])
    assert "no Python 3.11 or newer" in errors


@needs_wine
def test_the_volunteers_python_comes_first_if_it_can_train(windows: Windows) -> None:
    status, _, calls = windows.launch(VCDL_PYTHON=windows.python)
    assert status == 7, "the client's own exit code"
    assert calls[0] == "-c|...|"
    assert calls[1].endswith("vcdl_client.pyz|--wrapper|--nthreads|2|")
    for code in (1, -1073741515):  # it lacks a package; it lacks a DLL
        status, _, calls = windows.launch(VCDL_PYTHON=windows.python, ENDS=code)
        assert (status, calls) == (206, ["-c|...|"])


@needs_wine
def test_the_delivered_python_is_unpacked_once(windows: Windows) -> None:
    archive = windows.project / "vcdl_runtime_1.tar"
    stub = windows.slot / "vcdl_runtime.tar"
    stub.write_text(f"<soft_link>../project/{archive.name}</soft_link>\n")
    try:
        status, errors, _ = windows.launch()
        assert status == 206
        assert "could not be unpacked" in errors, "there is no archive"
        assert list(windows.project.iterdir()) == []
        archive.touch()
        status, errors, calls = windows.launch()
        assert (status, len(calls)) == (7, 2), errors
        assert calls[0] == "-I|-S|-c||"
        assert calls[1].startswith("-I|")
        assert "unpacking Python" in errors
        assert {path.name for path in windows.project.iterdir()} == {archive.name, f"{archive.name}.unpacked"}
        status, errors, calls = windows.launch()
        assert (status, len(calls)) == (7, 1)
        assert "unpacking" not in errors
    finally:
        stub.unlink()
