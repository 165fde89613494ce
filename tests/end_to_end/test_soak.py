"""The main example under fire, kept out of the ordinary suite: `pytest -m soak`."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.vcdl_process import (
    applied,
    assert_every_shard_of_every_epoch_was_applied_once,
    children,
    kill,
    none_alive,
    summary,
    vcdl,
    vcdl_in_background,
    wait_until,
    workers,
)
from tests.places import EXAMPLES

pytestmark = pytest.mark.process

EPOCHS, SHARDS = 8, 50
KILL_EVERY_S = 10.0
ALLOWED_LOSS = 0.005
"""Points of test accuracy."""


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_worker_killed_each_ten_seconds_and_everything_killed_once_costs_no_accuracy(tmp_path: Path) -> None:
    settings = ["--set", f"stop.epochs={EPOCHS}"]
    calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
    assert vcdl("run", EXAMPLES / "fashion_mnist.yaml", "--out", calm, *settings, timeout_s=900).returncode == 0

    run = vcdl_in_background("run", EXAMPLES / "fashion_mnist.yaml", "--out", disturbed, *settings)
    killed, killed_all = 0, False
    while run.poll() is None:
        time.sleep(KILL_EVERY_S)
        if not killed_all and len(applied(disturbed)) > EPOCHS * SHARDS / 2:
            family = [run.pid, *children(run.pid)]
            for pid in family:
                kill(pid)
            run.communicate()
            wait_until(partial(none_alive, family), "the processes were gone")
            killed_all = True
            run = vcdl_in_background("resume", disturbed)
        elif victims := workers(run.pid):
            kill(victims[killed % len(victims)])
            killed += 1

    assert run.returncode == 0, run.communicate()[0]
    assert killed_all
    assert killed >= 3
    assert_every_shard_of_every_epoch_was_applied_once(disturbed, EPOCHS, SHARDS)
    print(f"{killed} workers killed, everything killed once")
    for folder in (calm, disturbed):
        print(folder.name, summary(folder)["accuracy"], summary(folder)["workunits"], summary(folder)["wall_s"])
    summaries: list[Any] = [summary(folder) for folder in (calm, disturbed)]
    calm_test, disturbed_test = (each["accuracy"]["test"] for each in summaries)
    assert disturbed_test >= calm_test - ALLOWED_LOSS
