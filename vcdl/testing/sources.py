"""Test the contract of a published data set."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcdl.data.dataset import DataSource
from vcdl.data.rows import in_memory


class SourceContract:
    """Tests of data sets: a package's test class subclasses it and says which.

    class TestLeaves(SourceContract):
        source = my_package.leaves
        local = Path("/data/leaves")
    """

    source: Any
    """The module, with FACTS and `load`."""
    local: Path | None = None
    """A folder with copies of its files; None: it needs none."""

    @pytest.fixture(scope="class")
    @classmethod
    def loaded(cls) -> DataSource:
        """Return all samples of the source."""
        found: DataSource = cls.source.load(cls.local)
        return found

    def test_the_facts_are_those_of_the_samples(self, loaded: DataSource) -> None:
        """Check that FACTS match the samples.

        `describe` and built-in models read only FACTS and never load the data.
        """
        facts = self.source.FACTS
        assert len(loaded.train) == facts.train_samples
        assert (0 if loaded.test is None else len(loaded.test)) == facts.test_samples
        assert in_memory(loaded.train.x).shape[1:] == facts.input_shape
        # Every class occurs, from 0 on: a model has as many outputs.
        assert sorted(np.unique(loaded.train.y)) == list(range(facts.outputs))

    def test_every_load_gives_the_same_samples_in_the_same_order(self, loaded: DataSource) -> None:
        again = self.source.load(self.local)
        # Bit by bit: shards are named by their content, and a resumed run cuts the same ones.
        assert in_memory(again.train.x).tobytes() == in_memory(loaded.train.x).tobytes()
        assert again.train.y.tobytes() == loaded.train.y.tobytes()
