"""Run VCDL on a BOINC project: the grid of its jobs, the daemons, the installation, and the doctor."""
