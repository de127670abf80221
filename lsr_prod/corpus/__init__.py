"""What a corpus is on a disk or in an object store, and how it becomes rows: one judgement a row.

``sources`` pins the files of a source, ``filelist`` keeps a million of them, ``slices`` cuts them, ``read`` turns a
slice into ``rows``.
"""

__all__: list[str] = []
