"""Properties of all rules; the job file's names and the rules agree."""

from typing import Any

import numpy as np
import pytest

from tests.rules.updates import noise
from vcdl.job import Job
from vcdl.job.rule import rule_of
from vcdl.job.update import RULES, STALENESS
from vcdl.rules.base import Measured, Rule, Update
from vcdl.rules.centred_clipping import CentredClipping
from vcdl.rules.dc_asgd import DcAsgd
from vcdl.rules.delayed_nesterov import DelayedNesterov
from vcdl.rules.downpour import Downpour
from vcdl.rules.easgd import Easgd
from vcdl.rules.fedasync import Constant, FedAsync, Hinge, Polynomial
from vcdl.rules.fedbuff import FedBuff
from vcdl.rules.forecast import Forecast
from vcdl.rules.guarded import Guarded
from vcdl.rules.median import Median
from vcdl.rules.outer_nesterov import OuterNesterov
from vcdl.rules.ramp import Ramp
from vcdl.rules.trimmed_mean import TrimmedMean
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.wire.weights import Vector

EVERY: list[Rule] = [
    VcAsgd(0.7),
    VcAsgd(None),
    VcAsgd(Ramp(0.3, 0.98, "cosine", 100)),
    Easgd(0.3),
    FedAsync(0.6, Constant()),
    FedAsync(0.6, Polynomial()),
    FedAsync(0.6, Hinge()),
    Downpour(0.3),
    DcAsgd(0.3, 2.0),
    FedBuff(0.9, 5, Polynomial()),
    Forecast(0.25, 0.3, 2.0, 1.0),
    OuterNesterov(0.7, 0.9, 5, Constant()),
    DelayedNesterov(0.7, 0.9, 0.1, 5, Constant()),
    TrimmedMean(1.0, 5, 1, Hinge()),
    TrimmedMean(1.0, 1, 0, Constant()),
    Median(1.0, 5, Polynomial()),
    CentredClipping(0.9, 5, 1.0, Polynomial()),
    Guarded(Downpour(0.3), 2.0, 0.1),
    Guarded(FedBuff(0.9, 5, Constant()), 0.5, None),
]
every_rule = pytest.mark.parametrize("rule", EVERY, ids=repr)
WAITS, ENDS = 17, 20
"""Numbers of updates: in the middle and at the end of a buffer of 5."""


def at(part: slice, client: Vector, base: Vector, number: int = WAITS) -> Update:
    measured = Measured(3.0, 1.0, 0.5)
    return Update(client[part], 3, 6, samples=90, fraction=0.75, number=number, base=base[part], measured=measured)


def kept(rule: Rule, size: int) -> Vector:
    """W and what the rule keeps, in the middle of a job."""
    return rule.state.rows(noise(0, rule.state.size(size)))


@every_rule
@pytest.mark.parametrize("number", [WAITS, ENDS])
@pytest.mark.parametrize("size", [0, 1, 2, 1000, 100_003])
def test_all_at_once_and_piece_by_piece_give_the_same_bits(rule: Rule, size: int, number: int) -> None:
    before, client, base = kept(rule, size), noise(1, size), noise(2, size)
    whole = at(slice(0, size), client, base, number)
    server = before.copy()
    weight = rule.apply(server, whole)
    pieces = before.copy()
    for part in (slice(0, size // 3), slice(size // 3, size)):
        assert rule.apply(pieces[..., part], at(part, client, base, number)) == weight
    assert pieces.tobytes() == server.tobytes()
    assert (client.tobytes(), base.tobytes()) == (noise(1, size).tobytes(), noise(2, size).tobytes())


@every_rule
def test_folded_again_the_same_update_gives_the_same_bits(rule: Rule) -> None:
    """A rule keeps nothing but its state: what a server does does not depend on what it has done before."""
    first, second = kept(rule, 100).copy(), kept(rule, 100).copy()
    update = at(slice(0, 100), noise(1, 100), noise(2, 100))
    rule.apply(first, update)
    for _ in range(3):
        rule.apply(kept(rule, 100).copy(), update)
    rule.apply(second, update)
    assert first.tobytes() == second.tobytes()


@every_rule
def test_a_partial_update_counts_by_the_fraction_trained(rule: Rule) -> None:
    """From a state of zeros, as the last of a buffer."""
    whole: list[Any] = []
    half: list[Any] = []
    for fraction, moved in ((1.0, whole), (0.5, half)):
        server = rule.state.rows(rule.state.begun(noise(0, 100)))
        facts: Any = {"number": ENDS, "base": noise(2, 100), "measured": Measured(1.0, 1.0, 0.5)}
        rule.apply(server, Update(noise(1, 100), 3, 6, 90, fraction, **facts))
        moved.append(np.atleast_2d(server)[0].astype(np.float64) - noise(0, 100))
    np.testing.assert_allclose(half[0], whole[0] / 2, rtol=1e-3, atol=1e-5)


@every_rule
def test_only_a_rule_that_says_so_needs_the_base(rule: Rule) -> None:
    update = Update(noise(1, 10), 1, 0, samples=10, fraction=1.0, measured=Measured(3.0, 1.0, 0.5))
    server = kept(rule, 10).copy()
    if rule.needs_base:
        with pytest.raises(ValueError, match="started from"):
            rule.apply(server, update)
    else:
        rule.apply(server, update)


def job(update: Any) -> Job:
    data = {"dataset": "digits", "shards": 10}
    return Job.model_validate(
        {"name": "a", "model": {"builtin": "mlp"}, "data": data, "stop": {"epochs": 3}, "update": update}
    )


@pytest.mark.parametrize("name", RULES)
def test_every_rule_of_the_job_file_is_there_and_every_rule_that_is_there_can_be_named(name: str) -> None:
    assert RULES[name]().rule == name
    assert type(rule_of(job(name))).__name__.lower() == name.replace("_", "")
    assert len(RULES) == len({type(rule) for rule in EVERY} - {Guarded})


@pytest.mark.parametrize("name", STALENESS)
def test_every_way_to_damp_is_there(name: str) -> None:
    assert STALENESS[name]().name == name
    rule = rule_of(job({"rule": "fedasync", "staleness": name}))
    assert isinstance(rule, FedAsync)
    assert type(rule.damping).__name__.lower() == name


@pytest.mark.parametrize(
    ("update", "rule"),
    [
        ({"rule": "vc_asgd", "alpha": 0.95}, VcAsgd(0.95)),
        ({"rule": "vc_asgd", "alpha": "var"}, VcAsgd(None)),
        (
            {"rule": "vc_asgd", "alpha": {"from": 0.3, "to": 0.98, "schedule": "cosine"}},
            VcAsgd(Ramp(0.3, 0.98, "cosine", 30)),
        ),
        ({"rule": "easgd", "moving_rate": 0.01}, Easgd(0.01)),
        (
            {"rule": "fedasync", "mixing": 0.9, "staleness": {"name": "hinge", "threshold": 7}},
            FedAsync(0.9, Hinge(10.0, 7)),
        ),
        ({"rule": "fedasync", "staleness": {"name": "polynomial", "exponent": 1}}, FedAsync(0.6, Polynomial(1.0))),
        ({"rule": "downpour", "server_learning_rate": 0.3}, Downpour(0.3)),
        ({"rule": "dc_asgd", "server_learning_rate": 0.3, "compensation": 0}, DcAsgd(0.3, 0.0)),
        ({"rule": "fedbuff", "server_learning_rate": 2, "buffer": 4}, FedBuff(2.0, 4, Polynomial(0.5))),
        ({"rule": "outer_nesterov", "momentum": 0.5}, OuterNesterov(0.7, 0.5, 10, Constant())),
        ({"rule": "delayed_nesterov", "momentum_share": 0.1}, DelayedNesterov(0.7, 0.9, 0.1, 10, Constant())),
        ({"rule": "trimmed_mean", "trim": 3, "staleness": "hinge"}, TrimmedMean(1.0, 10, 3, Hinge())),
        ({"rule": "median", "server_learning_rate": 0.5, "buffer": 5}, Median(0.5, 5, Constant())),
        ({"rule": "centred_clipping", "clip": 0.5}, CentredClipping(1.0, 10, 0.5, Constant())),
        ({"rule": "vc_asgd", "alpha": 0.5, "guard": {"clip": 2}}, Guarded(VcAsgd(0.5), 2.0, None)),
        ({"rule": "median", "guard": {"min_cosine": 0}}, Guarded(Median(1.0, 10, Constant()), 1.0, 0.0)),
        ({"rule": "vc_asgd", "alpha": 0.5, "guard": {}}, Guarded(VcAsgd(0.5), 1.0, None)),
    ],
)
def test_the_job_files_keys_reach_the_rule(update: Any, rule: Rule) -> None:
    assert rule_of(job(update)) == rule
