"""Both kinds of trust keep the contract."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.served_run import ServedRun, noise
from vcdl.testing.folds import weights
from vcdl.testing.trust import LAYOUT, NewTrust, TrustContract
from vcdl.trust.bounds import Bounds
from vcdl.trust.own import Own
from vcdl.trust.strangers import Strangers
from vcdl.wire.layout import Vector
from vcdl.wire.weights import write_weights


class TestOwn(TrustContract):
    @pytest.fixture
    def new_trust(self) -> NewTrust:
        return lambda journal: Own()

    @pytest.fixture
    def tail(self) -> Vector:
        return np.zeros(0, np.float32)


class TestStrangers(TrustContract):
    @pytest.fixture
    def first_row(self) -> tuple[float, ...]:
        base = weights(1, LAYOUT.size)
        return tuple(Bounds(LAYOUT, 1.5, ()).row_of_step(base + np.float32(0.01) * weights(4, LAYOUT.size), base, 1.0))

    @pytest.fixture
    def new_trust(self, tmp_path: Path, first_row: tuple[float, ...]) -> NewTrust:
        run = ServedRun.new(tmp_path / "run", noise(0, LAYOUT.size), "", trust="strangers").run
        prepared = replace(run.prepared, layout=LAYOUT, own_step=first_row)
        write_weights(run.folder.reference_update_file, weights(5, LAYOUT.size), "{}")
        return partial(Strangers, type(run)(run.folder, run.job, prepared))

    @pytest.fixture
    def tail(self, first_row: tuple[float, ...]) -> Vector:
        return np.tile(np.asarray(first_row, np.float32), 50)
