"""Keys that sign weights, made for the tests and thrown away with them: the shortest that clients take."""

from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from vcdl.boinc.grid.weights_key import WeightsKey
from vcdl.wire.newest import EXPONENT

KEY, OTHER_KEY = (WeightsKey(generate_private_key(EXPONENT, 2048)) for _ in range(2))
