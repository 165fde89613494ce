"""The version of VCDL, which runs, journals and clients record."""

__version__ = "0.1.0"
