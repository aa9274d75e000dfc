"""Here lives how a race's facets are laid out: those that differ in depth alone make one group."""

from __future__ import annotations

from dataclasses import dataclass, replace

from normula.race.words import label
from normula.record import Cell, Facet, Race, Standing, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetGroup:
    """Facets that differ in depth alone, the shallow ones first.

    Attributes:
        title: what tells them from the others; empty where there are no others.
    """

    title: str
    facets: tuple[Facet, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A race's record, asked by facet and contestant."""

    race: Race

    @property
    def facets(self) -> tuple[Facet, ...]:
        """In the order of the grid."""
        return tuple(dict.fromkeys(row.facet for row in self.race.standings))

    @property
    def groups(self) -> tuple[FacetGroup, ...]:
        """All facets, by all but their depth."""
        found: dict[Facet, list[Facet]] = {}
        for facet in self.facets:
            found.setdefault(replace(facet, depth=0), []).append(facet)
        return tuple(
            FacetGroup(
                title=label(facets[0], self.facets, without=("depth",)),
                facets=tuple(sorted(facets, key=lambda facet: facet.depth)),
            )
            for facets in found.values()
        )

    def label(self, facet: Facet) -> str:
        """What tells a facet from the others; empty where there are none."""
        return label(facet, self.facets)

    def rows(self, facet: Facet) -> tuple[Standing, ...]:
        """The ranking of a facet, the best first."""
        return tuple(row for row in self.race.standings if row.facet == facet)

    def standing(self, facet: Facet, name: str) -> Standing:
        """A contestant in a facet."""
        return next(row for row in self.rows(facet) if row.name == name)

    def cells(self, facet: Facet, name: str, warmup: int) -> tuple[Cell, ...]:
        """A contestant's settings in a facet with one warmup, by rate."""
        cells = self.race.cells
        found = [one for one in cells if (one.facet, one.name, one.warmup) == (facet, name, warmup)]
        return tuple(sorted(found, key=lambda cell: cell.lr))

    @property
    def warmups(self) -> tuple[int, ...]:
        """Rising."""
        return tuple(sorted({cell.warmup for cell in self.race.cells}))

    def best_runs(self, facet: Facet, name: str) -> tuple[Trial, ...]:
        """A contestant's runs at its best setting, by seed."""
        row = self.standing(facet, name)
        cells = [one for one in self.cells(facet, name, row.warmup) if one.lr == row.lr]
        wanted = [identity for cell in cells for identity in cell.identities]
        named = {trial.identity: trial for trial in self.race.trials if trial.name == name}
        return tuple(named[identity] for identity in wanted)
