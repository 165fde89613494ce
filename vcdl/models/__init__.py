"""Models: built in, given as Keras JSON, or made by a Python function; and the check that one fits its data."""

from vcdl.models.build import build_model_json, initial_weights
from vcdl.models.check import check_model

__all__ = ["build_model_json", "check_model", "initial_weights"]
