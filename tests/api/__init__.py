"""Tests of vcdl.api."""
