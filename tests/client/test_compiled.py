"""Compiled programs that tasks hand to the next ones; and packages that a client does without."""

import os
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from vcdl.client import compiled
from vcdl.client.compiled import KEPT_FOLDER, CompiledPrograms

PROGRAM = zlib.compress(bytes(range(90)))
"""As JAX writes one; some 100 bytes."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def task(project: Path, name: str) -> tuple[CompiledPrograms, Path]:
    """A task's programs, and the folder in its slot where JAX keeps them."""
    slot = project.parent / name
    slot.mkdir(exist_ok=True)
    programs = CompiledPrograms(slot, project)
    programs.take()
    return programs, Path(programs.environment["JAX_COMPILATION_CACHE_DIR"])


def test_what_one_task_compiled_the_next_one_has(project: Path) -> None:
    first, own = task(project, "0")
    (own / "step-cache").write_bytes(PROGRAM)
    second, other = task(project, "1")
    assert list(other.iterdir()) == [], "a task that still runs may be in the middle of writing"
    first.hand_over()
    assert [path.read_bytes() for path in (project / KEPT_FOLDER).iterdir()] == [PROGRAM]
    second.take()
    assert (other / "step-cache").read_bytes() == PROGRAM
    second.hand_over()  # once more the same


def test_half_a_program_of_a_killed_process_is_not_used(project: Path) -> None:
    _, own = task(project, "0")
    (own / "step-cache").write_bytes(b"a pro")
    task(project, "0")[0].hand_over()
    assert not (project / KEPT_FOLDER).exists()


@pytest.mark.parametrize("size", [0, 3, 30])
def test_half_a_program_that_a_full_disk_left_is_not_kept(project: Path, size: int) -> None:
    programs, own = task(project, "0")
    (own / "half-cache").write_bytes(PROGRAM[:size])
    (own / "step-cache").write_bytes(PROGRAM)
    programs.hand_over()
    assert [path.name for path in (project / KEPT_FOLDER).iterdir()] == ["step-cache"]


def test_old_programs_and_more_than_the_limit_are_removed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_KEPT_BYTES", 250)
    programs, own = task(project, "0")
    for name, days in (("a", 1), ("b", 2), ("c", 3), ("d", 15)):
        path = own / f"{name}-cache"
        path.write_bytes(PROGRAM)
        os.utime(path, (0, time.time() - days * 86400))
    programs.hand_over()
    assert sorted(path.name for path in (project / KEPT_FOLDER).iterdir()) == ["a-cache", "b-cache"]


def test_a_project_that_cannot_be_written_only_costs_time(project: Path) -> None:
    programs, own = task(project, "0")
    (own / "step-cache").write_bytes(PROGRAM)
    (project / KEPT_FOLDER).touch()  # as root may write into any folder
    programs.hand_over()
    task(project, "0")


@pytest.mark.process
def test_keras_does_without_what_no_training_needs(tmp_path: Path) -> None:
    (tmp_path / "sklearn.py").write_text("raise SystemError('imported')")
    program = (
        "from vcdl.client.unneeded import hide_unneeded\nhide_unneeded()\n"
        "import importlib.util\nprint(importlib.util.find_spec('sklearn'))\n"  # PyTorch asks so
        "try:\n    import sklearn\nexcept ImportError:\n    print('not there')\n"
        "from vcdl.client.unneeded import unneeded_shown\n"
        "try:\n    with unneeded_shown():\n        import sklearn\nexcept SystemError as error:\n    print(error)\n"
        "print(importlib.util.find_spec('sklearn'))\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={"PYTHONPATH": path})
    assert done.stdout == "None\nnot there\nimported\nNone\n", done.stderr
