"""Keys that sign weights, made for the tests and thrown away with them."""

from vcdl.boinc.grid.weights_key import WeightsKey

KEY = WeightsKey.generate()
OTHER_KEY = WeightsKey.generate()
