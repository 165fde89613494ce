"""Properties of all rules; the job file's names and the rules agree."""

from typing import Any

import pytest

from vcdl.job import Job
from vcdl.job.update import RULES
from vcdl.rules.base import Rule
from vcdl.rules.damping import STALENESS, Constant, Hinge, Polynomial
from vcdl.rules.dc_asgd import DcAsgd
from vcdl.rules.delayed_nesterov import DelayedNesterov
from vcdl.rules.downpour import Downpour
from vcdl.rules.easgd import Easgd
from vcdl.rules.fedasync import FedAsync
from vcdl.rules.fedbuff import FedBuff
from vcdl.rules.outer_nesterov import OuterNesterov
from vcdl.rules.ramp import Ramp
from vcdl.rules.trimmed_mean import TrimmedMean
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.testing.rules import RuleContract

RAMP = Ramp.model_validate({"from": 0.3, "to": 0.98, "schedule": "cosine"})
DEFAULTS = [rule() for name, rule in RULES.items() if RULES.package(name) is None]
SET_OTHERWISE: list[Rule] = [
    VcAsgd(alpha=0.7),
    VcAsgd(alpha=RAMP),
    FedAsync(staleness=Constant()),
    FedAsync(staleness=Hinge()),
    FedBuff(buffer=5),
    DelayedNesterov(momentum_share=0.1, buffer=5),
    TrimmedMean(buffer=5, trim=1, staleness=Hinge()),
    TrimmedMean(buffer=1, trim=0),
]


class TestEveryRule(RuleContract):
    rules = (*DEFAULTS, *SET_OTHERWISE)


def job(update: Any) -> Job:
    data = {"dataset": "digits", "shards": 10}
    return Job.model_validate(
        {"name": "a", "model": {"builtin": "mlp"}, "data": data, "stop": {"epochs": 3}, "update": update}
    )


@pytest.mark.parametrize("name", STALENESS)
def test_every_way_to_damp_is_there(name: str) -> None:
    assert STALENESS[name]().name == name
    assert job({"rule": "fedasync", "staleness": name}).update == FedAsync(staleness=STALENESS[name]())


@pytest.mark.parametrize(
    ("update", "rule"),
    [
        ({"rule": "vc_asgd", "alpha": 0.95}, VcAsgd(alpha=0.95)),
        ({"rule": "vc_asgd", "alpha": "var"}, VcAsgd()),
        ({"rule": "vc_asgd", "alpha": {"from": 0.3, "to": 0.98, "schedule": "cosine"}}, VcAsgd(alpha=RAMP)),
        ({"rule": "easgd", "moving_rate": 0.01}, Easgd(moving_rate=0.01)),
        (
            {"rule": "fedasync", "mixing": 0.9, "staleness": {"name": "hinge", "threshold": 7}},
            FedAsync(mixing=0.9, staleness=Hinge(slope=10.0, threshold=7)),
        ),
        (
            {"rule": "fedasync", "staleness": {"name": "polynomial", "exponent": 1}},
            FedAsync(mixing=0.6, staleness=Polynomial(exponent=1.0)),
        ),
        ({"rule": "downpour", "server_learning_rate": 0.3}, Downpour(server_learning_rate=0.3)),
        (
            {"rule": "dc_asgd", "server_learning_rate": 0.3, "compensation": 0},
            DcAsgd(server_learning_rate=0.3, compensation=0.0),
        ),
        ({"rule": "fedbuff", "server_learning_rate": 2, "buffer": 4}, FedBuff(server_learning_rate=2.0, buffer=4)),
        ({"rule": "outer_nesterov", "momentum": 0.5}, OuterNesterov(momentum=0.5)),
        ({"rule": "delayed_nesterov", "momentum_share": 0.1}, DelayedNesterov(momentum_share=0.1)),
        ({"rule": "trimmed_mean", "trim": 3, "staleness": "hinge"}, TrimmedMean(trim=3, staleness=Hinge())),
    ],
)
def test_the_job_files_keys_reach_the_rule(update: Any, rule: Rule) -> None:
    assert job(update).update == rule
