"""Shared parts of the jobs that make training rows: one slice of the input becomes one Parquet part, exactly once.

``output`` reserves the folder for a plan, ``parts`` writes a part with its counts, ``job`` makes the missing parts on
actors, verifies the counts and seals the output. The jobs are ``negatives`` (mining) and ``scoring``.
"""

__all__: list[str] = []
