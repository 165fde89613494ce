"""Spare children: forked while that is safe, they run a module, keep nothing of their parent's, and end with it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vcdl.files.lock import holder_of

pytestmark = pytest.mark.process

PARENT = """
import os, sys, threading
from pathlib import Path
from vcdl.local import warm_workers
from vcdl.local.warm_workers import end_warm_workers, fork_warm_workers, one_thread, start_module
one_thread()
log, lock = Path("log"), None
def run(*arguments, **others):
    return start_module("told", *arguments, environment={**os.environ, "A": "b"}, log=log, **others)
"""
STAND_IN = """
from types import SimpleNamespace
sys.modules["keras"] = SimpleNamespace(backend=SimpleNamespace(backend=lambda: "tensorflow"))
"""
"""In the place of Keras, whose import takes seconds, where it does not matter."""
TOLD = """
import json, os, sys
from pathlib import Path
facts = {
    "parent": os.getppid(), "alone": os.getsid(0) == os.getpid(), "keras": "keras" in sys.modules,
    "files": sorted(map(int, os.listdir("/proc/self/fd")))[:-1], "tasks": len(os.listdir("/proc/self/task")),
    "a": os.environ["A"], "arguments": sys.argv[1:], "shown": Path("/proc/self/cmdline").read_text().split("\\0"),
}
print(json.dumps(facts), flush=True)
sys.stdin.read()
sys.exit(7)
"""


@pytest.fixture
def parent(tmp_path: Path) -> Callable[[str], "subprocess.Popen[str]"]:
    (tmp_path / "told.py").write_text(TOLD)

    def start(then: str) -> "subprocess.Popen[str]":
        path = os.pathsep.join([str(tmp_path), *sys.path])
        return subprocess.Popen(
            [sys.executable, "-c", PARENT + then],
            cwd=tmp_path,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"},
        )

    return start


ASKS = """
children = [run(str(number), answers=True) for number in range(2)]
print(os.getpid(), *(child.stdout.readline().decode() for child in children), sep="\\n")
for child in children:
    child.stdin.close()
print(*(child.wait() for child in children))
"""


def told(process: "subprocess.Popen[str]") -> tuple[int, list[dict[str, Any]], str]:
    said, errors = process.communicate(timeout=120)
    pid, *lines, ends = filter(None, said.splitlines())
    assert process.returncode == 0, errors
    return int(pid), [json.loads(line) for line in lines], ends


def test_a_spare_runs_a_module_with_keras_and_nothing_else_of_its_parents(
    parent: Callable[[str], "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    pid, said, ends = told(parent(f"opened = open('kept', 'w'); fork_warm_workers(1)\n{ASKS}end_warm_workers()"))
    assert ends == "7 7"
    assert [child["keras"] for child in said] == [True, False], "there was one spare"
    for number, child in enumerate(said):
        assert (child["parent"], child["alone"], child["files"], child["tasks"]) == (pid, True, [0, 1, 2], 1)
        assert (child["a"], child["arguments"]) == ("b", [str(number)])
        assert child["shown"][:5] == [sys.executable, "-P", "-m", "told", str(number)]
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "before",
    [
        "import keras; keras.ops.zeros(1)",  # TensorFlow has its threads
        f"{STAND_IN}threading.Thread(target=threading.Event().wait, daemon=True).start()",
    ],
)
def test_a_process_with_more_threads_than_one_is_not_forked(
    parent: Callable[[str], "subprocess.Popen[str]"], before: str
) -> None:
    _, said, ends = told(parent(f"{before}\nfork_warm_workers(2)\n{ASKS}"))
    assert ([child["keras"] for child in said], ends) == ([False, False], "7 7")


def test_a_spare_that_was_killed_is_passed_over_and_those_left_over_are_ended(
    parent: Callable[[str], "subprocess.Popen[str]"],
) -> None:
    killed = "fork_warm_workers(4)\nfirst, *_, last = warm_workers._warm\nfirst.kill()\nfirst.wait()\n"
    _, said, _ = told(parent(f"{STAND_IN}{killed}{ASKS}end_warm_workers()\nassert last.poll() == -9"))
    assert [child["keras"] for child in said] == [True, True]


def test_errors_of_a_module_are_in_the_log_and_in_the_exit_status(
    parent: Callable[[str], "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    (tmp_path / "told.py").write_text("import sys\nprint('said')\nsys.exit(sys.argv[1]) if sys.argv[1:] else 1 / 0")
    process = parent(f"{STAND_IN}fork_warm_workers(2)\nprint(run().wait(), run('it went wrong').wait())")
    said, errors = process.communicate(timeout=120)
    assert said == "1 1\n", errors
    log = (tmp_path / "log").read_text()
    assert "ZeroDivisionError" in log
    assert "said\nit went wrong\n" in log


def test_warm_workers_end_when_their_parent_is_killed_and_hold_no_lock_of_it(
    parent: Callable[[str], "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    program = """
from vcdl.files.lock import FileLock
lock = FileLock(Path("lock"), names_holder=True)
lock.acquire()
fork_warm_workers(2)
print(*(spare.pid for spare in warm_workers._warm), flush=True)
threading.Event().wait()
"""
    with parent(STAND_IN + program) as process:
        assert process.stdout is not None
        waiting, stopped = map(int, process.stdout.readline().split())
        assert holder_of(tmp_path / "lock") == process.pid
        wait_until(lambda: all(len(os.listdir(f"/proc/{pid}/fd")) == 3 for pid in (waiting, stopped)))
        os.kill(stopped, signal.SIGSTOP)
        process.kill()
        process.wait()
        assert holder_of(tmp_path / "lock") is None, "although a spare hangs"
        os.kill(stopped, signal.SIGCONT)
        wait_until(lambda: is_gone(waiting) and is_gone(stopped))


def wait_until(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
