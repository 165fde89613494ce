"""VCDL in a BOINC project: installing it and taking it out again."""
