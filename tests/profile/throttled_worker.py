"""A worker of differential runs with a stall made by hand, which VCDL_TEST_STALL names.

All its training waits rather than computes, so that what else the machine does hardly moves its times.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vcdl.client.batches import Order
from vcdl.client.inputs import Shard, read_shard
from vcdl.client.trainer import Trainer, TrainerCache
from vcdl.client.worker import main
from vcdl.profile.worker import KeptShard
from vcdl.wire.layout import Vector
from vcdl.wire.workunit import SHARD_FILE, Normalisation, Training

VARIABLE = "VCDL_TEST_STALL"
BATCH_S = 0.02
STALL_S = 0.5
_SHARED_DEVICE = Path(tempfile.gettempdir()) / f"vcdl-test-device-{os.getppid()}"


class WaitingTrainer(Trainer):
    """Each batch takes its time; with the stall `interconnect` on one device for all workers."""

    def steps(self, x: Any, y: Any, order: Order, batch_size: int, weights: Any = None) -> list[float]:
        with _SHARED_DEVICE.open("w") as device:
            if os.environ[VARIABLE] == "interconnect":
                fcntl.flock(device, fcntl.LOCK_EX)
            losses = super().steps(x, y, order, batch_size, weights)
            time.sleep(BATCH_S * len(losses))
        return losses


class WaitingTrainers(TrainerCache):
    def make(self, model_json: str, training: Training, frozen: Vector | None = None) -> Trainer:
        return WaitingTrainer(model_json, training, frozen)


def throttled(
    folder: Path,
    normalisation: Normalisation,
    input_shapes: Mapping[str, tuple[int | None, ...]],
    outputs: Sequence[str] = (),
) -> Shard:
    """A slow preparation, or a disk that is slow where the page cache does not have the shard."""
    stall = os.environ[VARIABLE]
    if stall == "prepare" or (stall == "fetch" and not is_cached(folder / SHARD_FILE)):
        time.sleep(STALL_S)
    return read_shard(folder, normalisation, input_shapes, outputs)


def is_cached(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
    return True


if __name__ == "__main__":
    main(WaitingTrainers(), KeptShard(throttled))
