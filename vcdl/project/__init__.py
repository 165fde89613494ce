"""VCDL in a BOINC project: installing it, taking it out again, and finding out what is wrong with it."""
