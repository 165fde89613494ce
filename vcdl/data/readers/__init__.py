"""Readers of sources, by the key `as` of `data > from`.

Each yields blocks of samples, always in the same order.
"""
