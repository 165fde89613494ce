"""A child of the run ends with its parent, and by itself with its own exit code."""

import subprocess
import sys

PROGRAM = "import time\nfrom vcdl.local.child import end_with_parent\nend_with_parent()\ntime.sleep(0.2)\n"


def child(then: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PROGRAM + then]
    return subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_child_ends_when_its_standard_input_closes() -> None:
    process = child("time.sleep(600)")
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


def test_a_child_that_ends_by_itself_has_its_own_exit_code_and_says_no_more_than_its_error() -> None:
    with child("raise SystemExit('it went wrong')") as process:
        assert process.wait(timeout=60) == 1
        assert process.stderr is not None
        assert process.stderr.read() == "it went wrong\n"
