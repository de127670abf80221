"""Exactly-once commits: markers of finished cells, the fencing epoch, and the committer of waves."""
