"""Measurements of speed, from a checkout: nothing imports them."""
