"""Asks a library's function whether it is an XLA FFI handler; run as a separate program.

    python probe.py LIBRARY SYMBOL

XLA asks the same of a handler that is registered, but any other function may do anything: end
the process. So this process asks first. Its exit status is the answer, and it says so once the
library is loaded. It imports nothing else of the package, so that it starts in no time.

Source: xla/ffi/api/c_api.h (`XLA_FFI_CallFrame`, `XLA_FFI_Api`, `XLA_FFI_Metadata_Extension`).
"""

from __future__ import annotations

import ctypes
import os
import sys

HANDLER = 77  # as nothing else would end
OTHER = 78
UNKNOWN = 79
LOADED = b"ipujax: loaded"

_SIZE = 512
_METADATA = 1  # XLA_FFI_Extension_Metadata


def _c_struct(*words: int) -> ctypes.Array[ctypes.c_uint64]:
    """Returns a C structure of its size and these words, padded with zeros."""
    return (ctypes.c_uint64 * (_SIZE // 8))(_SIZE, *words)


def probe_symbol(path: str, symbol: str) -> int:
    """Returns the exit status that classifies a function of a library."""
    try:
        library = ctypes.CDLL(path)
        os.write(1, LOADED)
        function = library[symbol]
    except (OSError, AttributeError):
        return UNKNOWN  # who asks finds out why
    used: list[None] = []
    entry = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: used.append(None))
    # Every function of XLA's that a handler could call, the one that makes errors among them.
    functions = ctypes.cast(entry, ctypes.c_void_p).value or 0
    api = _c_struct(*[functions] * (_SIZE // 8 - 1))
    metadata = _c_struct()
    extension = _c_struct(_METADATA, 0, ctypes.addressof(metadata))
    frame = _c_struct(ctypes.addressof(extension), ctypes.addressof(api))
    function.restype = ctypes.c_void_p
    function(ctypes.byref(frame))
    # A handler tells its version, or asks XLA for an error since it was built for another one.
    return HANDLER if used or metadata[1] else OTHER


if __name__ == "__main__":
    os._exit(probe_symbol(sys.argv[1], sys.argv[2]))  # without what the library does at the end
