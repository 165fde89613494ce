"""The 1 797 digits of 8 × 8 pixels that come with scikit-learn (Alpaydin and Kaynak 1998, UCI), for quick tests."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from vcdl.data.dataset import DataSource, Facts, Part, content_sha256
from vcdl.data.split import hold_out
from vcdl.errors import DataError

_TEST_SAMPLES = 360
"""Samples kept for testing: a fifth of the 1 797, so that its accuracy can be compared with earlier runs."""
FACTS = Facts((8, 8, 1), 10, 1_797 - _TEST_SAMPLES, 0, _TEST_SAMPLES, sample_bytes=8 * 8 + 4, packed=0.4)

_SHA256 = "619504694fb55e1884c255c200eb7059bafa217ab7576851db3afc2c8ac9a46d"
_TEST_SEED = 0
"""Seed of the test set: a constant, so that every job has the same test set and accuracies can be compared."""


def load(local: Path | None) -> DataSource:
    """Return 1 437 training and 360 test images, uint8 from 0 to 16 of shape (n, 8, 8, 1).

    Raises:
        DataError: scikit-learn is missing, or its file is damaged.
    """
    found = find_spec("sklearn")  # its file alone: importing scikit-learn takes half as long as importing Keras
    if found is None or found.origin is None:
        raise DataError("the digits come with scikit-learn, which is not installed: pip install 'vcdl[digits]'")
    try:
        table = np.loadtxt(Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz", np.uint8, delimiter=",")
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"scikit-learn's digits cannot be read ({error}): reinstall scikit-learn") from error
    x, y = table[:, :-1].reshape(-1, 8, 8, 1), table[:, -1]
    # The sum covers the numbers and not the file, which scikit-learn may compress anew in any release.
    if content_sha256(x, y) != _SHA256:
        raise DataError("the checksum of scikit-learn's digits is not the known one: reinstall scikit-learn")
    train, test = hold_out(y, _TEST_SAMPLES, stratified=True, rng=np.random.default_rng(_TEST_SEED))
    return DataSource(train=Part(x[train], y[train]), test=Part(x[test], y[test]))
