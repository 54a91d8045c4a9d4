"""Files: atomic writes, locks, digests.

Pictures are written by :mod:`landscape.storage.pictures`, which is imported only where one is drawn, because it takes
long to import Matplotlib.
"""

from landscape.storage.digests import tensor_digest
from landscape.storage.files import (
    append_line,
    atomic_write,
    load_torch,
    make_directory,
    save_torch,
    write_json,
    write_text,
)
from landscape.storage.lock import sole_writer

__all__ = [
    "append_line",
    "atomic_write",
    "load_torch",
    "make_directory",
    "save_torch",
    "sole_writer",
    "tensor_digest",
    "write_json",
    "write_text",
]
