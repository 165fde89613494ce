"""Properties of all rules; the job file's names and the rules agree."""

from typing import Any

import pytest

from vcdl.job import Job
from vcdl.job.update import RULES
from vcdl.rules.base import Rule
from vcdl.rules.damping import STALENESS, Constant, Hinge, Polynomial
from vcdl.rules.fedbuff import FedBuff
from vcdl.rules.ramp import Ramp
from vcdl.rules.trimmed_mean import TrimmedMean
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.testing.rules import RuleContract

RAMP = Ramp.model_validate({"from": 0.3, "to": 0.98, "schedule": "cosine"})
DEFAULTS = [rule() for name, rule in RULES.items() if RULES.package(name) is None]
SET_OTHERWISE: list[Rule] = [
    VcAsgd(alpha=0.7), VcAsgd(alpha=RAMP), FedBuff(buffer=5), FedBuff(staleness=Constant()),
    TrimmedMean(buffer=5, trim=1, staleness=Hinge()), TrimmedMean(buffer=1, trim=0),
]  # fmt: skip


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
    assert job({"rule": "fedbuff", "staleness": name}).update == FedBuff(staleness=STALENESS[name]())


@pytest.mark.parametrize(
    ("update", "rule"),
    [
        ({"rule": "vc_asgd", "alpha": 0.95}, VcAsgd(alpha=0.95)),
        ({"rule": "vc_asgd", "alpha": "var"}, VcAsgd()),
        ({"rule": "vc_asgd", "alpha": {"from": 0.3, "to": 0.98, "schedule": "cosine"}}, VcAsgd(alpha=RAMP)),
        (
            {"rule": "fedbuff", "staleness": {"name": "hinge", "threshold": 7}},
            FedBuff(staleness=Hinge(slope=10.0, threshold=7)),
        ),
        (
            {"rule": "fedbuff", "staleness": {"name": "polynomial", "exponent": 1}},
            FedBuff(staleness=Polynomial(exponent=1.0)),
        ),
        ({"rule": "fedbuff", "server_learning_rate": 2, "buffer": 4}, FedBuff(server_learning_rate=2.0, buffer=4)),
        ({"rule": "trimmed_mean", "trim": 3, "staleness": "hinge"}, TrimmedMean(trim=3, staleness=Hinge())),
    ],
)
def test_the_job_files_keys_reach_the_rule(update: Any, rule: Rule) -> None:
    assert job(update).update == rule
