"""The conditions that an upload must meet before it comes near the shared weights; each refusal has a name."""

from vcdl.checks.norm import NormMeter, trained_norm
from vcdl.checks.step import Step
from vcdl.checks.upload import UploadCheck

__all__ = ["NormMeter", "Step", "UploadCheck", "trained_norm"]
