"""Models: the built-in ones, those given as Keras JSON or by a Python function, and whether one fits its data."""

from vcdl.models.build import build_model_json, initial_weights
from vcdl.models.check import check_model

__all__ = ["build_model_json", "check_model", "initial_weights"]
