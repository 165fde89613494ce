"""Run jobs on a BOINC project: files in download/, workunits by create_work, results from the database."""
