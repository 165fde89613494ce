"""Test the contract of every update rule."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from vcdl.rules.base import Rule, Update
from vcdl.wire.layout import Vector

_SIZES = (0, 1, 2, 1000, 100_003)
_UPDATES = 100
"""Updates applied by a test: enough for a rule's buffers and averages to settle."""


class RuleContract:
    """Tests that every update rule must pass: a package's test class subclasses it and sets `rules`.

    class TestMedian(RuleContract):
        rules = (Median(), Median(buffer=5))
    """

    rules: ClassVar[Sequence[Rule]]
    """The rules to test, such as one with each kind of setting. A rule with a buffer has one of at most 5 or of the
    default."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test with each of `rules`, and with update numbers in the middle and at the end of a buffer."""
        # A decorator could not do this, because the rules are those of the subclass.
        if "rule" in metafunc.fixturenames:
            metafunc.parametrize("rule", self.rules, ids=str)
        if "number" in metafunc.fixturenames:  # in the middle and at the end of a buffer of 5 or 10
            metafunc.parametrize("number", (17, 20))

    def test_its_settings_are_keys_of_a_job_file(self, rule: Rule) -> None:
        """Check that all settings have a default, and that what a run stores of them reads back equal."""
        kind = type(rule)
        assert kind().rule == rule.rule
        assert kind.model_validate(rule.model_dump(mode="json", by_alias=True, exclude_none=True)) == rule

    @pytest.mark.parametrize("size", _SIZES)
    def test_all_at_once_and_piece_by_piece_give_the_same_bits(self, rule: Rule, size: int, number: int) -> None:
        before, client, base = _kept(rule, size), _noise(1, size), _noise(2, size)
        server = before.copy()
        weight = rule.apply(server, _update(slice(0, size), client, base, number))
        pieces = before.copy()
        # The pieces are uneven, since stores fold blocks of a fixed size and a remainder.
        for part in (slice(0, size // 3), slice(size // 3, size)):
            assert rule.apply(pieces[..., part], _update(part, client, base, number)) == weight
        assert pieces.tobytes() == server.tobytes()
        # The upload must be unchanged, since several passes read it, and each must see the same numbers.
        assert (client.tobytes(), base.tobytes()) == (_noise(1, size).tobytes(), _noise(2, size).tobytes())

    def test_folded_again_the_same_update_gives_the_same_bits(self, rule: Rule, number: int) -> None:
        """Check that a rule remembers nothing outside its state, so that a result never depends on earlier calls."""
        first, second = _kept(rule, 100).copy(), _kept(rule, 100).copy()
        update = _update(slice(0, 100), _noise(1, 100), _noise(2, 100), number)
        rule.apply(first, update)
        for _ in range(3):
            rule.apply(_kept(rule, 100).copy(), update)
        rule.apply(second, update)
        assert first.tobytes() == second.tobytes()

    def test_a_partial_update_counts_by_the_fraction_trained(self, rule: Rule) -> None:
        """Check that half an update moves W half as far, from the first state of a job and at the end of a buffer."""
        moved: list[Any] = []
        for fraction in (1.0, 0.5):
            server = rule.state.rows(rule.state.initial(_noise(0, 100)))
            rule.apply(server, _update(slice(0, 100), _noise(1, 100), _noise(2, 100), 20, fraction))
            moved.append(np.atleast_2d(server)[0].astype(np.float64) - _noise(0, 100))
        # The comparison allows rounding errors, because the rule may multiply by the fraction at another place.
        np.testing.assert_allclose(moved[1], moved[0] / 2, rtol=1e-3, atol=1e-5)

    def test_only_a_rule_that_says_so_needs_the_base(self, rule: Rule) -> None:
        update = Update(_noise(1, 10), 1, 0, samples=10, fraction=1.0, updates=_UPDATES)
        server = _kept(rule, 10).copy()
        if rule.needs_base:
            with pytest.raises(ValueError, match="started from"):
                rule.apply(server, update)
        else:
            rule.apply(server, update)

    def test_one_that_says_that_it_averages_never_leaves_the_two(self, rule: Rule, number: int) -> None:
        """Check that the result is between server and upload, because variances are averaged too and must stay ≥ 0."""
        if not rule.averages:
            return
        before, client, base = _kept(rule, 1000), np.abs(_noise(1, 1000)), _noise(2, 1000)
        server = np.abs(before)
        # Measured before `apply`, which changes `server` in place.
        low, high = np.minimum(server, client), np.maximum(server, client)
        rule.apply(server, _update(slice(0, 1000), client, base, number))
        assert ((low - 1e-6 <= server) & (server <= high + 1e-6)).all()


def _update(part: slice, client: Vector, base: Vector, number: int, fraction: float = 0.75) -> Update:
    facts: Any = {"epoch": 3, "staleness": 6, "samples": 90, "number": number, "updates": _UPDATES}
    return Update(client[part], fraction=fraction, base=base[part], **facts)


def _kept(rule: Rule, size: int) -> Vector:
    """Return random numbers in the shape of W and the rule's state, as in the middle of a job."""
    return rule.state.rows(_noise(0, rule.state.size(size)))


def _noise(seed: int, size: int) -> Vector:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)
