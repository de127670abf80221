"""Remove from an environment what an image never runs, then compile the rest to byte code.

    slim.py search|jobs|cuda

Runs at the end of the installation, with the interpreter of the environment. Removes tests, C headers and symbol
tables, and for the query library alone also native libraries that it does not load.
"""

import compileall
import py_compile
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

# Headers and tests, with the folder that holds them: a package may have a module called ``tests`` that it imports.
EVERYWHERE = [
    "*/tests",
    "numpy/*/tests",
    "pandas/*/tests",
    "scipy/*/tests",
    "scipy/*/*/tests",
    "pyarrow/include",
    "pyarrow/src",
    "pyarrow/**/*.pxd",
    "pyarrow/**/*.pyx",
    "pyarrow/libarrow*python*.so.*.*.*",  # copies of libraries: nothing loads these names
    "pyarrow/libarrow*python*.so",
    "numpy/**/*.a",
    "numpy/_core/include",
    "ray/jars",  # Ray for Java
    "ray/rllib",
]
# The C library of ONNX Runtime has a copy of what the Python module links statically. Flight and S3 of Arrow
# are not used: stores are read through obstore.
SEARCH = [
    "onnxruntime/capi/libonnxruntime.so*",
    "onnxruntime/datasets",
    "onnxruntime/quantization",
    "onnxruntime/tools",
    "onnxruntime/transformers",
    "pyarrow/*flight*",
    "pyarrow/*_s3*",
    "pyarrow/_s3fs*",
    "pyarrow/*encryption*",
    *(f"pyarrow/_{name}.*.so" for name in ("azurefs", "csv", "dataset*", "feather", "gcsfs", "hdfs", "json", "orc")),
    *(f"pyarrow/_{name}.*.so" for name in ("acero", "parquet", "substrait")),
    "numpy/_core/_simd*.so",  # a test of numpy
    "numpy/distutils",
    "numpy/f2py",
]
# Libraries with a large symbol table. Others, patched when their wheels were made, may not survive another change.
STRIPPED = [
    "pyarrow/*.so*",
    "ray/_raylet.so",
    "tantivy/*.so",
    "tokenizers/*.so",
]


def main(target: str) -> None:
    """Slim the environment of this interpreter."""
    packages = Path(sysconfig.get_path("purelib"))
    for pattern in EVERYWHERE + (SEARCH if target == "search" else []):
        for path in sorted(packages.glob(pattern)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    libraries = [str(path) for pattern in STRIPPED for path in packages.glob(pattern)]
    subprocess.run(["strip", "--strip-unneeded", *libraries], check=True)  # noqa: S603, S607 - of the build stage
    # Byte code that is never compared with its source: valid whatever times the layers of the image have.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(packages, quiet=2, invalidation_mode=mode, workers=0)


if __name__ == "__main__":
    main(sys.argv[1])
