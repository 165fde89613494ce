"""Training a local epoch in one call comes to the same as batch after batch, to the last bit."""

from pathlib import Path

import numpy as np
import pytest

from tests.client.workunit_folder import WORKUNIT, with_training, write_workunit
from vcdl.client.supervisor import Request
from vcdl.client.train import train_workunit
from vcdl.client.trainer import TrainerCache
from vcdl.simulate.shard_trainer import ShardTrainers
from vcdl.wire.weights import read_weights
from vcdl.wire.workunit import Named, UpdateHeader, Workunit

pytestmark = pytest.mark.keras


class Quiet:
    def request(self) -> Request:
        return Request.GO

    def progress(self, fraction: float, samples: int) -> None:
        return

    def checkpoint_made(self) -> None:
        return


def trained(folder: Path, workunit: Workunit, trainers: TrainerCache) -> tuple[bytes, UpdateHeader]:
    write_workunit(folder, workunit)
    train_workunit(folder, Quiet(), trainers)
    size = trainers.get((folder / "model.json").read_text(), workunit.training).layout.size
    vector, text = read_weights(folder / "update.h5", size)
    return vector.tobytes(), UpdateHeader.from_json(text)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_weights_and_loss_are_those_of_batch_after_batch(optimizer: str, tmp_path: Path) -> None:
    """With dropout, batch statistics, two local epochs and a last batch that is shorter; twice, as a worker does it."""
    workunit = with_training(optimizer=Named(optimizer))
    plain, loops = TrainerCache(), ShardTrainers()
    for number in range(2):
        expected, expected_header = trained(tmp_path / f"plain{number}", workunit, plain)
        weights, header = trained(tmp_path / f"loop{number}", workunit, loops)
        assert weights == expected
        assert header.loss == expected_header.loss
        assert header.samples == expected_header.samples


def test_it_is_one_call_for_a_local_epoch() -> None:
    import keras

    if keras.backend.backend() != "tensorflow":
        pytest.skip("other backends train batch after batch")
    assert ShardTrainers().make(_model_json(), WORKUNIT.training).at_once > 100


def _model_json() -> str:
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    return str(model.to_json())


def test_a_loss_that_is_not_finite_is_noticed(tmp_path: Path) -> None:
    from vcdl.client.train import DivergedError

    workunit = with_training(optimizer=Named("sgd"), learning_rate=1e30)
    with pytest.raises(DivergedError), np.errstate(all="ignore"):
        trained(tmp_path, workunit, ShardTrainers())
