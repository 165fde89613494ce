"""Figures of a run, computed from its journal, and the ways to show them."""
