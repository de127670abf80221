"""Sources on a disk or in an object store become validated rows.

``sources`` pins the files of a source, ``filelist`` holds a million of them, ``cut`` cuts them into ``slices``,
``read`` reads the records of a slice in one of the ``formats``, and ``rows`` validates them.
"""

__all__: list[str] = []
