"""Network requests of jobs, and the files that they leave."""
