"""VCDL: train one Keras model on many machines that nobody can rely on."""

__version__ = "0.1.0"
