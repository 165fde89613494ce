"""Benchmarks of VCDL beside the code that one would write without it."""
