"""Readers of sources, by the key `as` of `data > from`: each gives blocks of samples, always in the same order."""
