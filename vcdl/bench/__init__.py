"""Measuring VCDL beside what one would write without it."""
