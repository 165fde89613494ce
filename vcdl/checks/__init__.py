"""The conditions that an upload must meet before it comes near the shared weights; each refusal has a name."""

from vcdl.checks.norm import NormMeter, trained_norm
from vcdl.checks.upload import UploadCheck

__all__ = ["NormMeter", "UploadCheck", "trained_norm"]
