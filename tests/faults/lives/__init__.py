"""Random lives of a table and its index, compared after every step with a dictionary."""
