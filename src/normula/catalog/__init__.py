"""The named placements, as data with their papers."""

from normula.catalog.entry import Entry, Paper, Prediction, User
from normula.catalog.lookup import entries, entry, names_of, placement, placements

__all__ = ["Entry", "Paper", "Prediction", "User", "entries", "entry", "names_of", "placement", "placements"]
