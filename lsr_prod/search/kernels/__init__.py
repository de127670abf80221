"""Compiled kernels of search, in C; ``src`` has the sources, ``native.pyi`` the functions.

The wheel has them compiled. In a source tree ``make kernels`` compiles them.
"""

try:
    from lsr_prod.search.kernels import native as native
except ImportError as error:
    raise ImportError(
        f"the compiled kernels of lsr_prod cannot be loaded ({error}); install its wheel for this platform, or run "
        "`make kernels` in a source tree"
    ) from error
