"""The checks that an upload must pass before it is applied; each refusal has a name."""

from vcdl.checks.norm import NormMeter, trained_norm
from vcdl.checks.upload import UploadCheck

__all__ = ["NormMeter", "UploadCheck", "trained_norm"]
