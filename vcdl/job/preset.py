"""Presets: settings that one word in a job file stands for. What the file gives itself wins."""

from collections.abc import Mapping
from typing import Any, Literal

Preset = Literal["paper"]

PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # Atre, Jha, Rao 2021. The rate is fixed, as the paper's is; epochs are scored by the mean over their updates in any job.
    "paper": {
        "data": {"shards": 50},
        "training": {
            "optimizer": "adam",
            "moments": "none",
            "learning_rate": 0.001,
            "batch_size": 32,
            "local_epochs": 1,
        },
        "update": {"rule": "vc_asgd", "alpha": 0.95},
        "schedule": {"kind": "epoch"},
        "validate": {"every": "update", "samples": "all"},
    },
}
_CHOOSES = {"update": "rule"}
"""Sections of several kinds, with the key that chooses: another choice takes nothing over from the preset."""


def with_preset(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """A job file's values with those of its preset where it has none of its own; an unknown preset is left to the schema."""
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
