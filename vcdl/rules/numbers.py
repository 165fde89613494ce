"""Types of numbers for the settings of rules, ours and plugins' (docs/plugins.md), checked when a job file is read."""

from typing import Annotated

from vcdl.yaml_schema import values as kinds

AboveZero = Annotated[float, kinds.above_zero()]
NotNegative = Annotated[float, kinds.at_least(0)]
Part = Annotated[float, kinds.fraction(zero=False, one=True)]
"""In (0, 1]."""
Fraction = Annotated[float, kinds.fraction(zero=True, one=True)]
"""In [0, 1]."""
Count = Annotated[int, kinds.whole(1)]
