"""Fold a norm's gain and bias into the linear maps that read it, and the other way round.

    W (g * n + b) + c = (W diag(g)) n + (c + W b)

It is exact where linear maps are all that reads the norm; where the normed value also feeds the skip, it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from normula.read.reading import parameter_names
from normula.record.conversion import Affine, Conversion, Edit, Fold, LinearMap, Unfold, Untie
from normula.rewire.conversions.model import OUTPUT, Model
from normula.rewire.errors import RewireError

SKIP = "the normed value also feeds the skip"


def fold(model: Model) -> Conversion:
    """Fold every norm that only linear maps read.

    Raises:
        RewireError: there is none; the message says why.
    """
    found = _Found(model)
    edits: tuple[Edit, ...] = (*found.untied, *(Fold(norm=norm, maps=maps) for norm, maps in found.maps))
    done = tuple(_folded(norm, maps) for norm, maps in found.maps)
    return _finished("fold", found, edits, done)


def _folded(norm: Affine, maps: tuple[LinearMap, ...]) -> str:
    said = f"{', '.join(norm.parameters)} -> {', '.join(one.weight for one in maps)}"
    bare = [one.path for one in maps if norm.bias is not None and not one.bias]
    return f"{said}; {', '.join(bare)} gets a bias, which a checkpoint loads into a model that has it" if bare else said


def unfold(model: Model) -> Conversion:
    """Give gains again to norms whose gain is 1: what the columns of the linear maps have in common.

    Raises:
        RewireError: there is no norm that only linear maps read.
    """
    found = _Found(model, needs_gain=True)
    edits: tuple[Edit, ...] = (*found.untied, *(Unfold(norm=norm, maps=maps) for norm, maps in found.maps))
    done = tuple(f"{', '.join(one.weight for one in maps)} -> {norm.parameters[0]}" for norm, maps in found.maps)
    return _finished("unfold", found, edits, done)


def _finished(name: str, found: _Found, edits: tuple[Edit, ...], done: tuple[str, ...]) -> Conversion:
    if not found.maps or any(reason == SKIP for _, reason in found.left):
        reasons = Counter(reason for _, reason in found.left)
        said = "; ".join(
            f"{next(norm for norm, why in found.left if why == reason)}"
            f"{f' and {number - 1} more' if number > 1 else ''}: {reason}"
            for reason, number in reasons.items()
        )
        raise RewireError(
            "A norm is folded into linear maps where these are all that reads it, and that is not so here: "
            f"{said or 'no norm of the streams has parameters'}."
        )
    left = tuple(f"{norm}: {reason}" for norm, reason in found.left)
    return Conversion(name=name, edits=edits, done=done, left=left, added=found.added)


@dataclass(slots=True)
class _Found:
    """The norms whose readers are linear maps, and those that are left."""

    model: Model
    needs_gain: bool = False
    maps: list[tuple[Affine, tuple[LinearMap, ...]]] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    untied: list[Untie] = field(default_factory=list)
    added: int = 0

    def __post_init__(self) -> None:
        for norm, nodes in _by_parameters(self.model):
            maps = self._maps(norm, nodes)
            if isinstance(maps, str):
                self.left.append((norm.path, maps))
            else:
                self.maps.append((norm, maps))

    def _maps(self, norm: Affine, nodes: list[int]) -> tuple[LinearMap, ...] | str:
        """The linear maps that read a norm, at all nodes where its parameters are used, or why others do."""
        if self.needs_gain and norm.gain is None:
            return "it has no gain"
        if not all(self.model.is_over_features(node) for node in nodes):
            return "its statistics are not those of one token's features"
        reads = [list(self.model.readers(node)) for node in nodes]
        reason = next((reason for one in reads if (reason := self._beside(one))), "")
        if reason:
            return reason
        found: dict[int, LinearMap] = {}
        for user, view in (read for one in reads for read in one):
            linear = self.model.map_of(user, view, norm.width)
            if isinstance(linear, str):
                return linear
            found[user] = linear
        return self._own(norm, found) if found else "nothing reads it"

    def _own(self, norm: Affine, found: dict[int, LinearMap]) -> tuple[LinearMap, ...] | str:
        """Maps whose matrices nothing else uses, or may get values of their own, with a place for the norm's bias."""
        untied: dict[str, int] = {}
        for user, linear in found.items():
            weight = self.model.matrix(user)
            others = self.model.others(weight, set(found))
            if others and not (self.model.untie and len(self.model.graph[weight].attrs["names"]) > 1):
                return self._tied(linear.weight, others)
            if others:
                untied[linear.weight] = self.model.values.size(linear.weight)
        maps = tuple({one.weight: one for one in found.values()}.values())
        bare = [one for one in maps if not one.bias] if norm.bias is not None and not self.needs_gain else []
        if any(not self.model.values.takes_bias(one.path) for one in bare):
            return f"{bare[0].path} has no place for the bias that {', '.join(norm.parameters[-1:])} becomes"
        self.untied += [Untie(name=name) for name in untied]
        self.added += sum(untied.values())
        self.added += sum(self.model.values.size(one.weight) // norm.width for one in bare)
        return maps

    def _tied(self, weight: str, others: list[int]) -> str:
        return (
            f"{weight} is tied: {self.model.where(others[0])} uses it too; "
            "with values of its own (untie=True, --untie) it could be folded into"
        )

    def _beside(self, reads: list[tuple[int, int]]) -> str:
        """Why a norm cannot be folded that sums read, or multiples that go into sums."""
        kinds = {self.model.graph.kind(user) for user, _ in reads if user != OUTPUT}
        if "matmul" in kinds and kinds & {"add", "sub", "mul"}:
            return SKIP
        return "what it makes goes into a sum, and no linear map reads it alone" if kinds & {"add", "sub"} else ""


def _by_parameters(model: Model) -> Iterator[tuple[Affine, list[int]]]:
    """The norms of the streams that have parameters, each with all nodes where these are used."""
    groups: dict[tuple[str, ...], list[int]] = {}
    norms: dict[tuple[str, ...], Affine] = {}
    for node in model.norms():
        norm = model.affine(node)
        if norm.parameters:
            norms.setdefault(norm.parameters, norm)
            groups.setdefault(norm.parameters, [])
    for node, one in enumerate(model.graph.nodes):
        if one.kind == "norm" and model.graph.alive[node]:
            for names, nodes in groups.items():
                if set(parameter_names(model.graph, node)) & set(names):
                    nodes.append(node)
    return ((norms[names], nodes) for names, nodes in groups.items())
