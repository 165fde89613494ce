"""A BOINC project as the grid: files staged in download/, workunits made by create_work, results read from its database."""
