"""How long a vector of weights is, as the checks measure it."""

import numpy as np

from vcdl.weights import Layout, Vector

_STATISTICS = ("moving_mean", "moving_variance")
"""Of batch normalisation: they follow the data, and grow tenfold in the first steps of an honest training."""


def trained_norm(vector: Vector, layout: Layout) -> float:
    """‖W‖₂ without the statistics of batch normalisation; NaN when any number of the vector, shape (n,), is NaN or infinite.

    A sum of squares is finite only when every number is, and none is absurdly large.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(np.dot(vector, vector)):
            return float("nan")
        square, begin = 0.0, 0
        for variable in layout.variables:
            if variable.path.endswith(_STATISTICS):
                square += _square(vector[begin : variable.offset])
                begin = variable.offset + variable.size
        return float(np.sqrt(square + _square(vector[begin:])))


def _square(part: Vector) -> float:
    return float(np.dot(part, part))
