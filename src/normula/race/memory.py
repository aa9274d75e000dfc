"""How much memory this process has needed."""

from __future__ import annotations

import sys


def peak_memory() -> int:
    """Greatest resident memory of this process since it began, in bytes; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
