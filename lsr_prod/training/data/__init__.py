"""Training data: records become validated rows, rows become tokenized parts, parts become a training set.

In the order of the data: ``records`` pins, cuts and reads files, ``rows`` validates a record, ``tokenized_rows``
tokenizes rows in one of the ``layouts``, ``parts`` writes a part, ``prepare`` runs all of it on Ray, ``training_set``
reads rows by number. ``schemas`` checks files before anything is written, ``pins`` digests them, ``texts`` reads rows
on the driver.
"""
