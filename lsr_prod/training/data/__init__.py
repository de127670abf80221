"""Training data: records become validated rows, rows become tokenized parts, parts become a training set.

In the order of the data: ``schemas`` checks and digests files before anything is written, ``training_rows`` reads and
validates them, ``layouts`` tokenizes rows, ``parts`` writes a part, ``prepare`` runs all of it on Ray, ``training_set``
reads rows by number. ``row_jobs`` and ``row_parts`` are shared by the jobs that make training rows, mining and scoring.
"""
