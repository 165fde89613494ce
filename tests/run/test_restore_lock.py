"""Folds and restores keep apart, and neither waits for ever."""

import threading
import time
from pathlib import Path

import pytest

from vcdl.run.folder import RestoreLock, RunFolder

_BLOCKED_S = 0.3


@pytest.mark.slow
def test_servers_that_fold_all_the_time_let_a_restore_in(tmp_path: Path) -> None:
    """Each holds the lock until the next one has it, or cannot have it: without a gate it is never free."""
    lock, restored = RestoreLock(RunFolder(tmp_path)), threading.Event()

    def restore() -> None:
        with lock.restoring():
            restored.set()

    def fold(has_it: threading.Event, next_has_it: threading.Event) -> None:
        with lock.folding(shared=True):
            has_it.set()
            next_has_it.wait(_BLOCKED_S)

    threads, has_it = [threading.Thread(target=restore)], threading.Event()
    give_up_s = time.monotonic() + 5 * _BLOCKED_S
    while not restored.is_set() and time.monotonic() < give_up_s:
        next_has_it = threading.Event()
        threads.append(threading.Thread(target=fold, args=(has_it, next_has_it)))
        threads[-1].start()
        has_it.wait(10)
        if len(threads) == 2:
            threads[0].start()
        time.sleep(_BLOCKED_S / 30)
        has_it = next_has_it
    was_restored = restored.is_set()
    has_it.set()
    for thread in threads:
        thread.join()
    assert was_restored, "the servers continued folding"


def test_folds_go_on_side_by_side(tmp_path: Path) -> None:
    lock = RestoreLock(RunFolder(tmp_path))
    with lock.folding(shared=True), lock.folding(shared=True):
        pass
