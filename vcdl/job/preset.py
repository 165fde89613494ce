"""Define presets: several settings of a job file under one name. A key in the file wins over the preset."""

from collections.abc import Mapping
from typing import Any, Literal

Preset = Literal["paper"]

PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # The settings of Atre, Jha, Rao 2021, whose learning rate is constant. Every job scores an epoch by the mean over
    # its updates, so the paper's score needs no key.
    "paper": {
        "data": {"shards": 50},
        "training": {
            "optimizer": "adam",
            "share_optimizer_state": "none",
            "learning_rate": 0.001,
            "batch_size": 32,
            "local_epochs": 1,
        },
        "update": {"rule": "vc_asgd", "alpha": 0.95},
        "pacing": {"kind": "epoch"},
        "validate": {"every": "update", "samples": "all"},
    }
}
_CHOOSES = {"update": "rule"}
"""Section → the key that chooses its kind: if the job chooses another kind, the preset's section is ignored."""


def with_preset(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a copy of a job file's values, completed by those of its preset; an unknown preset adds nothing.

    The keys of the file win. The schema refuses the name of an unknown preset later.
    """
    name = job.get("preset")
    filled = dict(job)
    for section, values in (PRESETS.get(name, {}) if isinstance(name, str) else {}).items():
        given = job.get(section, {})
        chooses = _CHOOSES.get(section)
        if chooses is not None and isinstance(given, str):  # the choice alone: `update: vc_asgd`
            given = {chooses: given}
        if isinstance(given, Mapping) and (chooses is None or given.get(chooses, values[chooses]) == values[chooses]):
            filled[section] = {**values, **given}
    return filled
