"""Sources on a disk or in an object store become validated rows.

``sources`` lists the files of a source (``listing``, ``folders``) and pins them (``pinning``), ``filelist`` holds a
million of them and cuts them into slices, ``read`` reads the records of a slice in one of the ``formats``, and
``source_rows`` validates them. ``pinned_file`` verifies that what is read is what was pinned; ``compression``
and ``lines`` make lines of its bytes.
"""

__all__: list[str] = []
