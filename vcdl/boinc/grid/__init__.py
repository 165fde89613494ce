"""A BOINC project as a grid: files in download/, workunits by create_work, results read from the database."""
