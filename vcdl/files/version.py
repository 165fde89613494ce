"""The version of VCDL, which runs, journals and clients note."""

__version__ = "0.1.0"
