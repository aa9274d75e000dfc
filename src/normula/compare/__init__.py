"""The main job: placements side by side, from drawing to verdict."""

from normula.compare.compare import Settings, compare

__all__ = ["Settings", "compare"]
