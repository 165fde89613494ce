"""A child of the run ends with its parent, and by itself with its own exit code."""

import errno
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vcdl.errors import ExitCode, GridError, StoreError, start_cure
from vcdl.local.child import ChildProcess, run_child
from vcdl.report.failure import how_it_died, peak_bytes_of
from vcdl.run.folder import RunFolder

PROGRAM = (
    "import os, time\nfrom vcdl.files.children import when_parent_ends\n"
    "when_parent_ends(lambda: os._exit(0))\ntime.sleep(0.2)\n"
)


def child(then: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PROGRAM + then]
    return subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.process
def test_a_child_that_ends_by_itself_has_its_own_exit_code_and_says_no_more_than_its_error() -> None:
    with child("raise SystemExit('it went wrong')") as process:
        assert process.wait(timeout=60) == 1
        assert process.stderr is not None
        assert process.stderr.read() == "it went wrong\n"


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (MemoryError(), 9, "out of memory (MemoryError)"),
        (StoreError("the store is gone"), 7, "the store is gone"),
    ],
)
def test_a_child_tells_in_a_line_why_it_ends(error: Exception, status: int, said: str) -> None:
    told: list[str] = []

    def act() -> None:
        raise error

    assert run_child(act, told.append) == status
    assert told == [said]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (-9, r"killed by signal 9, as Linux does when memory runs out: it had 300\.0 MiB, .* are free now"),
        (-6, r"aborted by signal 6, as libraries do when memory runs out: it had 300\.0 MiB, .* are free now"),
        (int(ExitCode.MEMORY), r"out of memory: it had 300\.0 MiB, .* are free now"),
        (-15, "signal 15"),
        (3, "exit status 3"),
    ],
)
def test_the_end_of_a_process_says_what_it_had_of_memory(status: int, words: str) -> None:
    assert re.fullmatch(words, how_it_died(status, 300 << 20))


def test_the_most_memory_of_a_process_is_known_while_it_runs() -> None:
    assert (peak_bytes_of(os.getpid()) or 0) > 1 << 20
    assert peak_bytes_of(2**22 + 1) is None


@pytest.mark.process
def test_a_child_that_dies_again_and_again_is_started_less_often_and_anew_after_a_sign_of_work(tmp_path: Path) -> None:
    """No module has this name: it ends with status 1 as soon as it is started."""
    process = ChildProcess("vcdl.local.no_such_module", RunFolder(tmp_path))
    now_s = [0.0]
    process._starts.clock = lambda: now_s[0]

    def deaths(most: int) -> int:
        """Deaths until it is started no more, while the clock stands."""
        seen, give_up_s = 0, time.monotonic() + 60
        while seen < most and not (process._is_dead and not process._starts.is_due):
            assert time.monotonic() < give_up_s
            seen += process.watch(worked=False)
            time.sleep(0.01)
        return seen

    assert deaths(most=9) == 4, "the fourth in a row is waited after"
    assert process.death == "exit status 1"
    now_s[0] += 1.0
    assert deaths(most=9) == 1
    now_s[0] += 1.0
    assert deaths(most=9) == 0, "twice as long"
    assert not process.is_hopeless
    now_s[0] += 60.0
    assert deaths(most=9) == 1
    assert process.is_hopeless
    assert "died 6 times in a row, the last time: exit status 1" in str(process.hopeless())
    process.try_anew()
    assert deaths(most=9) == 4, "as if it were new"
    process.close()


@pytest.mark.process
def test_a_child_that_ends_with_an_error_of_ours_died_of_that(tmp_path: Path) -> None:
    """Here of a folder that is no run."""
    process = ChildProcess("vcdl.local.evaluator", RunFolder(tmp_path))
    give_up_s = time.monotonic() + 60
    while not process.watch(worked=False):
        assert time.monotonic() < give_up_s
        time.sleep(0.05)
    process.close()
    assert process.death.startswith(f"{tmp_path} holds no run"), process.death


@pytest.mark.process
def test_a_process_that_may_open_no_more_files_says_which_limit_to_raise(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(tmp_path, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 2, before[1]))
    try:
        with pytest.raises(GridError, match=r"Too many open files; raise the limit of open files \(`ulimit -n`\)"):
            ChildProcess("vcdl.local.server", RunFolder(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_other_reasons_for_no_process_have_other_cures() -> None:
    assert start_cure(OSError(errno.ENOMEM, "")) == "free some memory"
    assert start_cure(OSError(errno.EAGAIN, "")) == "raise the limit of processes (`ulimit -u`)"
