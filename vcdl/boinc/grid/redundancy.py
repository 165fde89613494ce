"""Workunits that two hosts train: which ones, and BOINC's settings for them."""

import re

from vcdl.checks.draw import is_drawn

_QUORUM_OF_TWO = {
    "min_quorum": 2,
    "target_nresults": 2,
    "max_error_results": 3,
    "max_total_results": 6,
    "max_success_results": 4,
}
"""Two that agree; while none do, up to four that were trained to their end."""


def is_made_twice(workunit: str, share: float, key: str) -> bool:
    """Whether two hosts train a workunit, by its name and the run's secret; `share`: of all workunits, from 0 to 1."""
    return is_drawn(key, "redundancy", workunit, share)


def for_two(template: str) -> str:
    """The input template of the workunits that two hosts train, from that of the others."""
    for tag, number in _QUORUM_OF_TWO.items():
        template, found = re.subn(rf"<{tag}>\d+</{tag}>", f"<{tag}>{number}</{tag}>", template)
        if found != 1:
            raise ValueError(f"the input template has {found} times <{tag}>: this is a bug in vcdl")
    return template
