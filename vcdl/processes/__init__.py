"""The processes of a job: children that are started again, parameter servers as many as are needed."""
