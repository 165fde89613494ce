"""What is true of all rules, and that the job file's names and the rules agree."""

from typing import Any

import numpy as np
import pytest

from tests.rules.updates import noise
from vcdl.course import Ramp
from vcdl.job import Job
from vcdl.job_update import RULES, STALENESS
from vcdl.rules import (
    Constant,
    DcAsgd,
    Downpour,
    Easgd,
    FedAsync,
    Hinge,
    Polynomial,
    Rule,
    Update,
    VcAsgd,
)
from vcdl.rules.blocks import BLOCK
from vcdl.rules.of_job import rule_of
from vcdl.weights import Vector

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
]
every_rule = pytest.mark.parametrize("rule", EVERY, ids=repr)


def at(part: slice, client: Vector, base: Vector) -> Update:
    return Update(client[part], epoch=3, staleness=6, samples=90, fraction=0.75, number=17, base=base[part])


@every_rule
@pytest.mark.parametrize("size", [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7])
def test_in_place_and_into_another_vector_and_piece_by_piece_give_the_same_bits(rule: Rule, size: int) -> None:
    before, client, base = noise(0, size), noise(1, size), noise(2, size)
    whole = slice(0, size)
    server, out = before.copy(), np.full(size, np.nan, np.float32)
    weight = rule.apply(server, at(whole, client, base))
    assert rule.apply(before, at(whole, client, base), out) == weight
    assert out.tobytes() == server.tobytes()
    assert before.tobytes() == noise(0, size).tobytes(), "W is left as it is"
    again = before.copy()
    rule.apply(again, at(whole, client, base), again)
    assert again.tobytes() == server.tobytes()
    pieces = before.copy()
    for part in (slice(0, size // 3), slice(size // 3, size)):
        assert rule.apply(pieces[part], at(part, client, base)) == weight
    assert pieces.tobytes() == server.tobytes()
    assert (client.tobytes(), base.tobytes()) == (noise(1, size).tobytes(), noise(2, size).tobytes())


@every_rule
def test_folded_again_the_same_update_gives_the_same_bits(rule: Rule) -> None:
    """A rule keeps nothing: what a server does does not depend on what it has done before."""
    first, second = noise(0, 100), noise(0, 100)
    update = at(slice(0, 100), noise(1, 100), noise(2, 100))
    rule.apply(first, update)
    for _ in range(3):
        rule.apply(noise(5, 100), update)
    rule.apply(second, update)
    assert first.tobytes() == second.tobytes()


@every_rule
def test_a_partial_update_counts_by_the_fraction_trained(rule: Rule) -> None:
    facts: Any = {"epoch": 3, "staleness": 6, "samples": 90, "number": 17, "base": noise(2, 100)}
    whole, half = noise(0, 100).astype(np.float64), noise(0, 100).astype(np.float64)
    for fraction, moved in ((1.0, whole), (0.5, half)):
        server = noise(0, 100)
        rule.apply(server, Update(noise(1, 100), fraction=fraction, **facts))
        moved[:] = server - noise(0, 100)
    np.testing.assert_allclose(half, whole / 2, rtol=1e-3, atol=1e-5)


@every_rule
def test_only_a_rule_that_says_so_needs_the_base(rule: Rule) -> None:
    update = Update(noise(1, 10), epoch=1, staleness=0, samples=10, fraction=1.0)
    if rule.needs_base:
        with pytest.raises(ValueError, match="started from"):
            rule.apply(noise(0, 10), update)
    else:
        rule.apply(noise(0, 10), update)


def job(update: Any) -> Job:
    data = {"dataset": "digits", "shards": 10}
    return Job.model_validate(
        {"name": "a", "model": {"builtin": "mlp"}, "data": data, "stop": {"epochs": 3}, "update": update}
    )


@pytest.mark.parametrize("name", RULES)
def test_every_rule_of_the_job_file_is_there_and_every_rule_that_is_there_can_be_named(name: str) -> None:
    assert RULES[name]().rule == name
    assert type(rule_of(job(name))).__name__.lower() == name.replace("_", "")
    assert len(RULES) == len({type(rule) for rule in EVERY})


@pytest.mark.parametrize("name", STALENESS)
def test_every_way_to_damp_is_there(name: str) -> None:
    assert STALENESS[name]().name == name
    rule = rule_of(job({"rule": "fedasync", "staleness": name}))
    assert isinstance(rule, FedAsync)
    assert type(rule.damping).__name__.lower() == name


@pytest.mark.parametrize(
    ("update", "rule"),
    [
        ({"alpha": 0.95}, VcAsgd(0.95)),
        ({"alpha": "var"}, VcAsgd(None)),
        ({"alpha": {"from": 0.3, "to": 0.98, "schedule": "cosine"}}, VcAsgd(Ramp(0.3, 0.98, "cosine", 30))),
        ({"rule": "easgd", "moving_rate": 0.01}, Easgd(0.01)),
        ({"rule": "fedasync", "mixing": 0.9, "staleness": {"name": "hinge", "free": 7}}, FedAsync(0.9, Hinge(10.0, 7))),
        ({"rule": "fedasync", "staleness": {"name": "polynomial", "exponent": 1}}, FedAsync(0.6, Polynomial(1.0))),
        ({"rule": "downpour", "rate": 0.3}, Downpour(0.3)),
        ({"rule": "dc_asgd", "rate": 0.3, "compensation": 0}, DcAsgd(0.3, 0.0)),
    ],
)
def test_the_job_files_keys_reach_the_rule(update: Any, rule: Rule) -> None:
    assert rule_of(job(update)) == rule
