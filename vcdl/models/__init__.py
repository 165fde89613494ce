"""Models: built in, given in a file, or made by a Python function; and the check that one fits its data."""

from vcdl.models.build import BuiltModel, build_model, build_model_json, initial_weights
from vcdl.models.check import check_model
from vcdl.models.fitted import Fitted, fitted

__all__ = ["BuiltModel", "Fitted", "build_model", "build_model_json", "check_model", "fitted", "initial_weights"]
