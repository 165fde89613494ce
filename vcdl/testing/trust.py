"""Test the contract of every kind of trust in clients."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from vcdl.errors.refusal import Refusal
from vcdl.journal.events import UpdateApplied, UpdateRefused, WorkunitCreated, WorkunitSent
from vcdl.journal.journal import Journal
from vcdl.rules.base import Update
from vcdl.run.staging import Uploaded
from vcdl.testing.folds import weights, workunit
from vcdl.trust.contract import Admission, Trust, UploadFacts
from vcdl.wire.layout import Layout, Variable, Vector
from vcdl.wire.workunit import UpdateHeader

LAYOUT = Layout((Variable("dense/kernel", (60, 10), 0), Variable("dense/bias", (10,), 600)))
"""The layout of the weights in these tests, those of one dense layer."""
_HOSTS = ("often", "seldom", "refused", "new")
_BROUGHT = 60
"""Uploads of a test: enough for hosts to become known, quarantined and trusted."""
_SIZES = (LAYOUT.size, 7)
"""Sizes of blocks: the whole model, and one whose blocks end in the middle of a variable."""

NewTrust = Callable[[Journal], Trust]
"""`new_trust(journal)` returns the trust of a job with this journal, as a server creates it at its start."""


class TrustContract:
    """Tests that every kind of trust must pass: a package's test class subclasses it and has two fixtures.

    `tail` returns the numbers that the trust keeps after W when a job starts.

        class TestReputation(TrustContract):
            @pytest.fixture
            def new_trust(self) -> NewTrust:
                return Reputation

            @pytest.fixture
            def tail(self) -> Vector:
                return np.zeros(0, np.float32)
    """

    @pytest.mark.parametrize("counted", [1.0, 0.3])
    def test_a_server_that_begins_anew_decides_as_one_that_followed(
        self, new_trust: NewTrust, tmp_path: Path, counted: float
    ) -> None:
        with closing(Journal.at(tmp_path / "journal.db")) as journal:
            follower = new_trust(journal)
            for number in range(1, _BROUGHT):
                _bring(journal, number)
                follower.catch_up()
                # A new trust reads the whole journal, which is slow, so only each tenth upload is checked.
                if number % 10 == 0:
                    anew = new_trust(journal)
                    anew.catch_up()
                    followed, begun = (_admit(trust, journal, counted) for trust in (follower, anew))
                    # They are compared by repr, as it contains every field, and as NaN equals itself there.
                    assert repr(followed) == repr(begun)

    def test_what_counts_does_so_at_most_once_and_what_is_whole_is_no_part(
        self, new_trust: NewTrust, tmp_path: Path
    ) -> None:
        with closing(Journal.at(tmp_path / "journal.db")) as journal:
            trust = new_trust(journal)
            for number in range(1, _BROUGHT):
                _bring(journal, number)
                trust.catch_up()
                admitted = _admit(trust, journal, 1.0)
                assert [one.host for one in admitted] == list(_HOSTS)
                assert all(0.0 <= one.weight <= 1.0 and not one.is_part for one in admitted)
                assert any(one.refused is None and one.weight > 0 for one in admitted), "a job continues"

    @pytest.mark.parametrize("size", _SIZES)
    @pytest.mark.parametrize("length", [0.01, 100.0])
    def test_measuring_changes_nothing_and_no_number_is_held_further_from_where_it_began(
        self, new_trust: NewTrust, tail: Vector, tmp_path: Path, size: int, length: float
    ) -> None:
        # The upload is measured twice with fresh copies, because a second fold after a kill must give the same bits.
        held = [self._held(new_trust, tail.copy(), tmp_path, length, blocks) for blocks in (size, size)]
        assert held[0].tobytes() == held[1].tobytes(), "folded again it is the same"
        base, upload = _base(), _upload(length)
        # A trust may shorten a step, but never lengthen or turn it; 1e-5 is float32's rounding at these magnitudes.
        assert (np.abs(held[0] - base) <= np.abs(upload - base) + 1e-5).all()

    def _held(self, new_trust: NewTrust, tail: Vector, folder: Path, length: float, size: int) -> Vector:
        """Measure and judge an upload in blocks of `size` numbers, and return it as the trust would let it be applied.

        A trust that measures nothing returns it unchanged. `tail` is changed in place.

        Args:
            new_trust: Makes the trust.
            tail: The numbers that the trust keeps after W.
            folder: The folder of the journal.
            length: The length of the step, as a multiple of usual weights.
            size: Numbers in a block.
        """
        base, upload, w = _base(), _upload(length), weights(3, LAYOUT.size)
        with closing(Journal.at(folder / "journal.db")) as journal, ExitStack() as opened:
            measurement = new_trust(journal).measurement(UploadFacts(1, 0, 10, 1.0), opened)
            if measurement is None:
                return upload
            blocks = [slice(begin, begin + size) for begin in range(0, LAYOUT.size, size)]
            for block in blocks:
                update = Update(upload[block], 1, 0, samples=10, fraction=1.0, base=base[block])
                measurement.add(w[block], update, block.start)
            assert (w.tobytes(), upload.tobytes()) == (weights(3, LAYOUT.size).tobytes(), _upload(length).tobytes())
            measurement.judge(tail)
            assert np.isfinite(tail).all()
            for block in blocks:
                measurement.hold(upload[block], base[block], block.start)
        return upload


def _base() -> Vector:
    return weights(1, LAYOUT.size)


def _upload(length: float) -> Vector:
    return _base() + np.float32(length) * weights(2, LAYOUT.size)


def _bring(journal: Journal, number: int) -> None:
    """Append an upload to the journal: number 3n is one of the host `refused` and refused, others are applied."""
    name, host = workunit(number), "refused" if number % 3 == 0 else "seldom" if number % 7 == 0 else "often"
    journal.append(WorkunitCreated(name), WorkunitSent(name, host, 10))
    if host == "refused":
        journal.append(UpdateRefused(name, Refusal.NOT_FINITE.value, "", 0, host))
    else:
        journal.append(UpdateApplied(name, number, 0, number, 0.1, 10, 1.0, 1.0, 0.5, 100, host))


def _admit(trust: Trust, journal: Journal, counted: float) -> Sequence[Admission]:
    """Return how the trust admits a further upload from each of `_HOSTS` now, in their order."""
    name = workunit(_BROUGHT)
    header = UpdateHeader("j", name, 0, LAYOUT.fingerprint, 10, counted, 1.0, 0.5)
    uploads = [Uploaded(name, Path("update.h5"), 0, host) for host in _HOSTS]
    return [trust.admit(upload, header, counted, None, journal.now_s()) for upload in uploads]
