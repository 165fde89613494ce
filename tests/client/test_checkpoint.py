"""A checkpoint brings everything back, or is left aside with a note."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.workunit_folder import WORKUNIT
from vcdl.client.checkpoint import Checkpoint, Position
from vcdl.client.slot import CHECKPOINT_FILE
from vcdl.client.trainer import TrainerState

STATE = TrainerState(
    np.arange(50, dtype=np.float32),
    (np.array(13), np.array([0.5, 0.25], np.float32), np.zeros((3, 2), np.float32)),
    (np.array([7, 3], np.uint32),),
)
POSITION = Position(samples=104, loss_sum=1.25, train_s=9.5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Checkpoint(POSITION, STATE).write(tmp_path, WORKUNIT)
    return tmp_path


def test_what_is_read_is_what_was_written(folder: Path) -> None:
    read = Checkpoint.read(folder, WORKUNIT, STATE)
    assert read is not None
    assert read.position == POSITION
    np.testing.assert_array_equal(read.state.weights, STATE.weights)
    for got, written in zip((*read.state.optimizer, *read.state.seeds), (*STATE.optimizer, *STATE.seeds), strict=True):
        np.testing.assert_array_equal(got, written)
        assert got.dtype == written.dtype
    assert [path.name for path in folder.iterdir()] == [CHECKPOINT_FILE]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda raw: b"", id="empty"),
        pytest.param(lambda raw: b"not a zip", id="another file"),
        pytest.param(lambda raw: raw[: len(raw) // 2], id="cut short"),
        pytest.param(lambda raw: raw[:-1], id="a byte short"),
        pytest.param(lambda raw: raw.replace(b"position", b"poaition"), id="overwritten"),
    ],
)
def test_a_damaged_checkpoint_is_left_aside_with_a_note(
    folder: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[bytes], bytes]
) -> None:
    path = folder / CHECKPOINT_FILE
    path.write_bytes(damage(path.read_bytes()))
    assert Checkpoint.read(folder, WORKUNIT, STATE) is None
    assert "training starts over" in caplog.text


@pytest.mark.parametrize(
    "position",
    [
        {"samples": "104"}, {"samples": -1}, {"samples": 10**30}, {"samples": True}, {"loss_sum": float("nan")},
        {"train_s": float("inf")}, {"train_s": -1.0}, {"train_s": None},
    ],
)  # fmt: skip
def test_a_checkpoint_of_an_impossible_position_is_left_aside(
    folder: Path, caplog: pytest.LogCaptureFixture, position: dict[str, Any]
) -> None:
    Checkpoint(replace(POSITION, **position), STATE).write(folder, WORKUNIT)
    assert Checkpoint.read(folder, WORKUNIT, STATE) is None
    assert "training starts over" in caplog.text


@pytest.mark.slow
def test_no_flipped_byte_goes_unnoticed_or_raises(folder: Path) -> None:
    path = folder / CHECKPOINT_FILE
    raw = path.read_bytes()
    for place in range(0, len(raw), 7):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 0x5A]) + raw[place + 1 :])
        read = Checkpoint.read(folder, WORKUNIT, STATE)
        if read is not None:  # a time stamp in the zip, which nobody reads
            assert read.position == POSITION
            np.testing.assert_array_equal(read.state.weights, STATE.weights)


def test_a_checkpoint_of_another_workunit_or_model_is_left_aside(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert Checkpoint.read(folder, replace(WORKUNIT, attempt=1), STATE) is None
    assert "another workunit" in caplog.text
    larger = replace(STATE, weights=np.zeros(51, np.float32))
    assert Checkpoint.read(folder, WORKUNIT, larger) is None
    other_optimizer = replace(STATE, optimizer=STATE.optimizer[:2])
    assert Checkpoint.read(folder, WORKUNIT, replace(other_optimizer, seeds=())) is None
    assert "another model or optimizer" in caplog.text


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(folder: Path) -> None:
    before = (folder / CHECKPOINT_FILE).read_bytes()
    with pytest.raises(ValueError, match="allow_pickle"):
        Checkpoint(POSITION, replace(STATE, seeds=(np.array([object()]),))).write(folder, WORKUNIT)
    assert (folder / CHECKPOINT_FILE).read_bytes() == before
    assert [path.name for path in folder.iterdir()] == [CHECKPOINT_FILE]
