"""What a job will take and cost: a model of time and money, as functions of numbers."""
