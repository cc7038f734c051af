"""When this process gives memory back to the kernel."""

from __future__ import annotations

import ctypes

MIB = 1024 * 1024
KEPT_BYTES = 16 * MIB

# As in glibc's <malloc.h>.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> None:
    """Have the C library keep up to ``KEPT_BYTES`` that are freed, for the next time they are needed.

    A payload passes in reads of 256 KiB. Left alone, glibc gives each back to the kernel when it is freed and asks for
    the next one anew: 64 page faults a read, which cost as much as carrying it. Another C library is left as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # Setting one of them ends glibc's own adjustment of both.
        mallopt(_M_MMAP_THRESHOLD, 4 * MIB)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
