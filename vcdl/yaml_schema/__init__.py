"""YAML files with a schema: read with line numbers, checked, refused in words."""
