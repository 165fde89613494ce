"""Grids: what carries workunits to clients and results back."""
