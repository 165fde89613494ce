"""A model of a job's time and money, as functions of numbers."""
