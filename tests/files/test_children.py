"""Children of ours: what they import, what they may take, and that all of them start in one place."""

import ast
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT
from vcdl.files.children import Limits, confined_environment, python_command, run_child

PLACE = "vcdl/files/children.py"
NO_PYTHON_OF_OURS = {
    "vcdl/boinc/doctor/runtime.py",
    "vcdl/boinc/grid/create_work.py",
    "vcdl/boinc/project/tools.py",
    "vcdl/boinc/runtime/base.py",
    "vcdl/boinc/runtime/interpreter.py",
    "vcdl/boinc/runtime/packages.py",
    "vcdl/boinc/server/restoring.py",
    "vcdl/boinc/server/system.py",
    "vcdl/commands/new.py",
    "vcdl/fleet/machine/vcdl_agent/boinc.py",
    "vcdl/pool/queues.py",
    "vcdl/report/alerts.py",
}
"""Files that start programs of BOINC, the system or a user, or what `python_command` returns."""
FORKS = {"vcdl/local/warm_workers.py", "vcdl/testing/stores.py"}
"""Files that fork: what a child imports is what its parent would."""
STARTS = {"Popen", "call", "check_call", "check_output", "getoutput", "system", "popen", "Process"}
STARTS_TOO = re.compile(r"exec[lv]|spawn[lv]|posix_spawn|create_subprocess|run$")


def _names(file: Path) -> Iterator[str]:
    """Names by which a file could start a process: of calls, and of options in lists that are a command."""
    nodes = [*ast.walk(ast.parse(file.read_bytes()))]
    types = {id(node.value) for node in nodes if isinstance(node, ast.Subscript)}  # subprocess.Popen[bytes]
    for node in nodes:
        if id(node) in types:
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module, name = node.value.id, node.attr
            if module in ("subprocess", "os", "asyncio") and (name in STARTS or STARTS_TOO.match(name)):
                yield f"{module}.{name}"
            elif (module, name) == ("os", "fork") or module == "multiprocessing":
                yield "fork"
        elif isinstance(node, ast.ImportFrom) and node.module in ("subprocess", "os", "asyncio", "multiprocessing"):
            yield from (f"{node.module}.{one.name}" for one in node.names if one.name in STARTS)
        elif isinstance(node, ast.Constant) and node.value == "-m":
            yield "-m"


def test_python_of_ours_is_started_in_one_place() -> None:
    found = {str(file.relative_to(ROOT)): {*_names(file)} for file in sorted((ROOT / "vcdl").rglob("*.py"))}
    assert {"subprocess.Popen", "-m"} <= found.pop(PLACE)
    starting = {place for place, names in found.items() if names - {"fork"}}
    assert {place: found[place] for place in starting} == {place: {"subprocess.run"} for place in NO_PYTHON_OF_OURS}
    assert {place for place, names in found.items() if "fork" in names} == FORKS


def test_launchers_of_daemons_leave_the_current_folder_out_too() -> None:
    launchers = [path.read_text(encoding="utf-8") for path in (ROOT / "boinc_project" / "bin").glob("vcdl_*")]
    started = [line for text in launchers for line in text.splitlines() if " -m vcdl" in line]
    assert len(started) == 6
    assert all('"$VCDL_PYTHON" -P -m vcdl' in line for line in started)


def test_a_confined_child_gets_no_credentials_and_no_relative_path() -> None:
    given = {
        "PATH": "/bin", "PYTHONPATH": ":code:/opt/x", "AWS_SECRET_ACCESS_KEY": "x", "VCDL_TOKEN": "x", "LC_ALL": "C",
        "SSH_AUTH_SOCK": "x", "VCDL_STORE_URL": "redis://h", "KERAS_BACKEND": "jax", "VCDL_ACCOUNT_KEY": "x",
    }  # fmt: skip
    assert confined_environment(given) == {
        "PATH": "/bin", "PYTHONPATH": f"{Path.cwd()}/code:/opt/x", "LC_ALL": "C", "VCDL_STORE_URL": "redis://h",
        "KERAS_BACKEND": "jax", "PYTHONSAFEPATH": "1",
    }  # fmt: skip
    assert "VCDL_STORE_URL" not in confined_environment(given, has_store=False)


@pytest.mark.process
@pytest.mark.parametrize("grandchild", [False, True])
def test_a_child_imports_nothing_from_the_current_folder(tmp_path: Path, grandchild: bool) -> None:
    (tmp_path / "this.py").write_text("print('mine')")
    code = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'this'])"
    arguments = ("timeit", "-n1", "-r1", code) if grandchild else ("this",)
    done = run_child(*arguments, timeout_s=60, cwd=tmp_path, env=confined_environment())
    assert b"Zen of Python" in done.stdout
    assert b"mine" not in done.stdout


def _timed(code: str, limits: Limits, timeout_s: float = 60.0) -> "subprocess.CompletedProcess[bytes]":
    return run_child("timeit", "-n1", "-r1", code, timeout_s=timeout_s, limits=limits)


@pytest.mark.process
def test_a_child_gets_no_more_than_its_limits(tmp_path: Path) -> None:
    small = Limits(memory_bytes=200 << 20, cpu_s=1, written_bytes=1 << 20)
    assert b"MemoryError" in _timed("bytearray(1 << 30)", small).stderr
    large = tmp_path / "large"
    assert b"File too large" in _timed(f"open({str(large)!r}, 'wb').write(bytes(2 << 20))", small).stderr
    assert large.stat().st_size <= 1 << 20
    assert b"Too many open files" in _timed("[open('/dev/null') for _ in range(2000)]", small).stderr


@pytest.mark.slow
@pytest.mark.process
def test_a_child_is_ended_at_its_seconds_of_a_processor() -> None:
    done = _timed("while True: pass", Limits(memory_bytes=1 << 30, cpu_s=1))
    assert done.returncode in (-signal.SIGXCPU, -signal.SIGKILL)


@pytest.mark.process
@pytest.mark.parametrize("ends", [True, False])
def test_nothing_outlives_a_limited_child(tmp_path: Path, ends: bool) -> None:
    note = tmp_path / "pid"
    code = f"""import subprocess, time
p = subprocess.Popen(['sleep', '1000'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
open({str(note)!r}, 'w').write(str(p.pid))
{"" if ends else "time.sleep(1000)"}"""
    limits = Limits(memory_bytes=1 << 30, cpu_s=10)
    if ends:
        assert _timed(code, limits).returncode == 0
    else:
        with pytest.raises(subprocess.TimeoutExpired):
            _timed(code, limits, timeout_s=2)
    pid = int(note.read_text())
    for _ in range(500):  # its new parent reaps it
        if not _lives(pid):
            break
        time.sleep(0.01)
    assert not _lives(pid)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_command_names_another_interpreter() -> None:
    assert python_command("vcdl", "status", Path("/x"), python="/opt/python") == [
        *("/opt/python", "-P", "-m", "vcdl", "status", "/x"),
    ]
    assert os.path.isabs(python_command("vcdl")[0])
