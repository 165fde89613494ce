"""Read and check YAML files by a schema, with an error message for each mistake."""
