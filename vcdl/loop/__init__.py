"""The loop of a job: coordinator, work generator, grid contract, assimilator, evaluator."""
