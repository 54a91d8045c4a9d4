"""Files: atomic writes, locks, digests.

Pictures are written by :mod:`landscape.storage.pictures`, which is imported only where one is drawn, because it takes
long to import Matplotlib.
"""

from typing import TYPE_CHECKING

from landscape.lazy import lazily

if TYPE_CHECKING:
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
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "append_line": "landscape.storage.files",
            "atomic_write": "landscape.storage.files",
            "load_torch": "landscape.storage.files",
            "make_directory": "landscape.storage.files",
            "save_torch": "landscape.storage.files",
            "sole_writer": "landscape.storage.lock",
            "tensor_digest": "landscape.storage.digests",
            "write_json": "landscape.storage.files",
            "write_text": "landscape.storage.files",
        },
    )

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
