"""The section `trust` of a job file: whose machines train the job, and how far their uploads are trusted."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import model_validator

from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.section import Section

TrustKind = Literal["auto", "own", "strangers"]
Trust = Literal["own", "strangers"]


class TrustSettings(Section):
    """`trust: …`: `auto` is `strangers` for `vcdl submit` and `vcdl simulate`, and `own` for `vcdl run`."""

    kind: Annotated[TrustKind, kinds.one_of(TrustKind)] = "auto"
    """Whose machines train the job. A run's own job file has `own` or `strangers`."""
    clip: Annotated[float, kinds.above_zero()] = 1.5
    """The longest step of a variable, as a multiple of its usual one; longer ones are clipped to it."""
    rollback: Annotated[bool, kinds.true_or_false()] = True
    """Whether a job of strangers that has collapsed rolls back to its last good version."""
    verify: Annotated[float, kinds.fraction(zero=True, one=True)] = 0.05
    """The fraction of uploads that the server retrains, in addition to the first of each host; 0: none."""

    @model_validator(mode="before")
    @classmethod
    def _forgets_redundancy(cls, raw: Any) -> Any:
        """Drop `redundancy: 0`, which runs from before December 2026 contain."""
        # Another value than 0 asked for a feature that was removed. It is left in place and refused as an unknown key.
        if isinstance(raw, Mapping) and raw.get("redundancy") == 0:
            return {key: value for key, value in raw.items() if key != "redundancy"}
        return raw
