"""Source formats, one module each; ``registry`` lists them. A new format is one module and one line there."""

__all__: list[str] = []
