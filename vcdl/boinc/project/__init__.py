"""Install VCDL in a BOINC project, and remove it."""
