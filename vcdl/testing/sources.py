"""Test the contract of a published data set."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcdl.data.dataset import DataSource
from vcdl.data.rows import in_memory


class SourceContract:
    """Tests that every published data set must pass: a package's test class subclasses it and sets `source`.

    class TestLeaves(SourceContract):
        source = my_package.leaves
        local = Path("/data/leaves")
    """

    source: Any
    """The module, with FACTS and `load`."""
    local: Path | None = None
    """A folder with copies of the source's files, so that the tests download nothing; None: it needs no files."""

    @pytest.fixture(scope="class")
    @classmethod
    def loaded(cls) -> DataSource:
        """Load all samples of the source, once for all tests of the class."""
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
        # Every class from 0 on must occur, because a model has an output for each.
        assert sorted(np.unique(loaded.train.y)) == list(range(facts.outputs))

    def test_every_load_gives_the_same_samples_in_the_same_order(self, loaded: DataSource) -> None:
        again = self.source.load(self.local)
        # The samples must be equal bit by bit, because shards are named by their content and a resumed run must cut the
        # same ones.
        assert in_memory(again.train.x).tobytes() == in_memory(loaded.train.x).tobytes()
        assert again.train.y.tobytes() == loaded.train.y.tobytes()
