"""Presets: several settings of a job file under one name. A key in the file wins over the preset."""

from collections.abc import Mapping
from typing import Any, Literal

Preset = Literal["paper"]

PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # Atre, Jha, Rao 2021. The rate is constant, as in the paper. Every job scores an epoch by the mean over its
    # updates.
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
    """Complete a job file's values by those of its preset. The schema refuses an unknown preset."""
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
