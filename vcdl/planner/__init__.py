"""A model of a job's duration and cost: pure functions of numbers."""
