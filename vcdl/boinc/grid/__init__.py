"""A BOINC project as a grid: files staged in download/, workunits made by create_work, results read from the
database.
"""
