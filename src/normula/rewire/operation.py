"""From the wanted layers of a model to all that is done to a copy of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from normula.formula import Formula, Placement
from normula.formula.run import number
from normula.formula.tree import Call, Gain
from normula.formula.words import NORMS, STREAM
from normula.record.rewiring import Branch, Change, InnerNorm, Instruction, NewGain, NewNorm, NormAt, Operation, Script
from normula.rewire.anatomy import Anatomy, Norm, Stack
from normula.rewire.errors import RewireError
from normula.rewire.matching import KINDS, Placed, matched
from normula.rewire.straight import Line
from normula.rewire.wanted import Wanted, site, wanted
from normula.spec.step import Step

WORDS = {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm", "L2Norm": "l2norm", "DyT": "dyt", "Derf": "derf"}


@dataclass(slots=True)
class Drawn:
    """An operation while it is drawn up, with what a plan says of it.

    Attributes:
        argument: for the path of a module, the argument that its stream comes in.
        slot: the place for a closing norm that a model has and leaves empty, by the path of its last layer.
        in_pass: whether a pass is changed, not modules: norms before and after a stack are named beside its layers.
    """

    argument: Mapping[str, tuple[str, int]]
    slot: Mapping[str, str]
    in_pass: bool = False
    scripts: dict[str, Script] = field(default_factory=dict)
    passing: dict[str, bool] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    unused: list[str] = field(default_factory=list)
    norms: list[NewNorm] = field(default_factory=list)
    gains: list[NewGain] = field(default_factory=list)
    slots: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    placed: list[NormAt] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bare: dict[str, NewNorm] = field(default_factory=dict)
    ends: dict[str, NormAt] = field(default_factory=dict)

    @property
    def every(self) -> tuple[NormAt, ...]:
        """The norms on the stream as they will be, those before and after the stacks last."""
        return (*self.placed, *(one for path, one in self.ends.items() if path not in self.passing))

    def finished(self) -> Operation:
        removed = tuple(path for path in self.passing if path not in self.used)
        return Operation(
            scripts=tuple(self.scripts.values()),
            passing=tuple(self.passing.items()),
            removed=removed,
            unused=tuple(self.unused),
            norms=tuple(self.norms),
            gains=tuple(self.gains),
            slots=tuple(self.slots),
            bare=tuple(self.bare.values()),
        )


def draw(drawn: Drawn, placement: Placement, stack: Stack, sides: Mapping[str, int]) -> tuple[Wanted, ...]:
    """Draw up what is done to one stream.

    Raises:
        RewireError: it cannot be done; the message says why.
    """
    layers = wanted(placement, stack, sides)
    for norm in stack.norms:
        if norm.parameters:
            drawn.bare[norm.path] = NewNorm(
                path=norm.path,
                kind=_kind("norm", norm, stack),
                width=norm.width,
                eps=norm.eps,
                like=norm.path,
                axes=norm.axes,
            )
    changed = [one for one in layers if one.text != one.layer.text or _lacking(one)]
    scopes: dict[str, list[Wanted]] = {}
    for one in layers:
        scopes.setdefault(one.layer.path, []).append(one)
    if not stack.follows and _only_norm(placement.embed) is None:
        _drop(drawn, stack.embed, "before the first layer")
    for path, members in scopes.items():
        if any(one in changed for one in members) or _ends_inside(placement, stack, members):
            _script(drawn, path, members, stack)
    for norm in (*stack.embed, *stack.final):
        drawn.ends[norm.path] = NormAt(
            path=norm.path, site=norm.site, kind=norm.kind, eps=norm.eps, layer=0, origin="kept"
        )
    _embed(drawn, placement.embed, stack)
    _final(drawn, placement.final, stack)
    return layers


def _ends_inside(placement: Placement, stack: Stack, members: Sequence[Wanted]) -> bool:
    """Whether a norm is wanted before or after the layers that only the module can put there that runs them all."""
    embed = _only_norm(placement.embed) is not None and not stack.embed and not stack.follows
    final = _only_norm(placement.final) is not None and not stack.final and not stack.is_followed
    return len(members) > 1 and (embed or final)


def _script(drawn: Drawn, path: str, layers: Sequence[Wanted], stack: Stack) -> None:
    """What one module does to the stream, through one layer or several.

    Raises:
        RewireError: it does that to another stream as well.
    """
    if path in drawn.scripts and drawn.scripts[path].branches:
        raise RewireError(
            f"{path or 'This model'} runs layers of two streams, which attend to one another as they were before the "
            "layer; only modules that run layers of one stream are rewired."
        )
    line = Line()
    branches: list[Branch] = []
    gains: list[str] = []
    for one in layers:
        places = _places(drawn, path, one, len(layers) > 1, stack)
        first = len(branches)
        for step, (written, numbers) in enumerate(zip(one.steps, one.numbers, strict=True)):
            own = {index: where for (at, index), where in places.items() if at == step}
            runs = {index: first + place for index, place in numbers.items()}
            line.layer(written.formula, written.symbols, own, runs)
        inner = _inner(drawn, path, one, len(layers) > 1, stack)
        for place, sublayer in enumerate(one.layer.sublayers):
            watched = below(sublayer.path, path) if sublayer.beside else ""
            branches.append(
                Branch(
                    word=sublayer.word,
                    entry=line.entries[first + place],
                    after=line.after.get(first + place, ""),
                    factor=sublayer.factor,
                    path=watched,
                    in_parts=sublayer.in_parts,
                    shifts=sublayer.shifts,
                    inner=inner.get(place, ()),
                    writer=below(sublayer.writer, path) if inner.get(place) and sublayer.writer else "",
                )
            )
        gains += [below(name, path) for name in one.layer.gains]
        drawn.unused += one.layer.gains
        drawn.changes += [
            Change(where=one.layer.path, site="gain", change=f"{name} is no longer read; it stays as a parameter")
            for name in one.layer.gains
        ]
        for norm in one.layer.norms:
            drawn.passing[norm.path] = norm.stays
    drawn.scripts[path] = Script(
        path=path,
        argument=drawn.argument.get(path, ("", -1)),
        begins=_begins(drawn, path, layers, stack),
        holds_ends=len(layers) > 1,
        code=tuple(line.code),
        branches=tuple(branches),
        scaled=any(one.layer.scaled for one in layers),
        gains=tuple(gains),
    )


def _begins(drawn: Drawn, path: str, layers: Sequence[Wanted], stack: Stack) -> str:
    """The norm whose output a stream begins as that is no argument of the module; empty for another beginning.

    Raises:
        RewireError: nothing says where it begins.
    """
    if path in drawn.argument:
        return ""
    if stack.embed and stack.embed[-1].path not in drawn.passing:
        return below(stack.embed[-1].path, path)
    if not (stack.embed or (layers[0].layer.norms and layers[0].layer.norms[0].site.endswith("norm_in"))):
        raise RewireError(
            f"The stream of {path or 'the model'} is no argument of its forward, and no norm stands where it begins; "
            "put the layers into a module whose forward is given the stream."
        )
    return ""


def _eps(word: str, like: Norm | None) -> float:
    """That of the model's norms; else 1e-5, and for a length 1e-12, as torch.nn.functional.normalize has it."""
    return like.eps if like else 1e-12 if word == "l2norm" else 1e-5


def _places(drawn: Drawn, path: str, one: Wanted, several: bool, stack: Stack) -> dict[tuple[int, int], str]:
    """Where each norm and gain of a layer's formula lives, below the module that runs it."""
    prefix = f"layer_{one.layer.number}_" if several else ""
    places: dict[tuple[int, int], str] = {}
    before = {norm.site: norm for norm in one.layer.norms}
    features = _features(one.layer, stack)
    for placed in matched(one):
        if placed.source is not None and placed.origin != "copied":
            places[placed.step, placed.index] = below(placed.source.path, path)
            drawn.used.add(placed.source.path)
            drawn.placed.append(_at(placed.source.path, placed, placed.source, one.layer.number))
            if placed.origin == "moved":
                drawn.changes.append(
                    Change(
                        where=one.layer.path,
                        site=placed.site,
                        change=f"{placed.source.path}, from {placed.source.site}",
                    )
                )
            continue
        like = placed.source or _template(placed.word, one.layer, stack)
        name = prefix + placed.site.replace(".", "_")
        places[placed.step, placed.index] = name
        new = NewNorm(
            path=f"{path}.{name}".lstrip("."),
            kind=_kind(placed.word, like, stack),
            width=like.width if like else features[1],
            eps=_eps(placed.word, like),
            like=like.path if like else "",
            axes=like.axes if like else features[:1],
            start=placed.start,
            copied=placed.origin == "copied",
        )
        drawn.norms.append(new)
        drawn.placed.append(_at(new.path, placed, like, one.layer.number))
        if placed.source is not None:
            drawn.notes.append(
                f"{placed.source.path}: 2 sites, 1 tensor -> 2 tensors (copied); they are trained apart from here on"
            )
        drawn.changes.append(Change(where=one.layer.path, site=placed.site, change=f"+ {new.path}, {_words(placed)}"))
    for place, step in enumerate(one.steps):
        for gain in step.formula.gains:
            places[place, gain.index] = _gain(drawn, path, prefix, one, step, gain, features)
    kept = set(places.values())
    for where, norm in before.items():
        if below(norm.path, path) not in kept:
            drawn.changes.append(Change(where=one.layer.path, site=where, change=f"- {norm.path}"))
    return places


INSIDE: Mapping[str, str] = {"q": "qk", "k": "qk", "v": "v", "heads": "attn-out", "mid": "mid-mlp"}
"""What a reading calls the parts of a sublayer that may be normalised."""


def _lacking(one: Wanted) -> dict[tuple[int, str], str]:
    """What is to be normalised inside sublayers and is not."""
    return {
        (number, part): word
        for (number, part), word in one.inner.items()
        if INSIDE[part] not in one.layer.sublayers[number].inner
    }


def _inner(drawn: Drawn, path: str, one: Wanted, several: bool, stack: Stack) -> dict[int, tuple[InnerNorm, ...]]:
    """The norms that are put inside the sublayers of a layer, by the number of the sublayer; what is there stays."""
    prefix = f"layer_{one.layer.number}_" if several else ""
    found: dict[int, tuple[InnerNorm, ...]] = {}
    if drawn.in_pass and _lacking(one):
        raise RewireError(
            "Norms are put inside of sublayers in modules of PyTorch only; a model of JAX takes placements that norm "
            "what sublayers read and give."
        )
    for (place, part), word in _lacking(one).items():
        sublayer = one.layer.sublayers[place]
        again = one.layer.words[: place + 1].count(sublayer.word)
        owner = sublayer.word + (f"_{again}" if again > 1 else "")
        widths = {"q": sublayer.head, "k": sublayer.head, "v": sublayer.value_head}
        width = widths.get(part, sublayer.writer_width)
        if not width:
            raise RewireError(
                f"A norm of {part} needs {_needs(part)} in {sublayer.path or owner}, and none was found there."
            )
        new = _inner_norm(drawn, f"{prefix}{owner}_norm_{part}", path, word, width, one, stack)
        factor = sublayer.query_factor if part == "q" else 1.0
        found[place] = (*found.get(place, ()), InnerNorm(part, new, factor))
    return found


def _needs(part: str) -> str:
    return "one product of queries and keys" if part in "qkv" else "one matrix that makes the sublayer's output"


def _inner_norm(drawn: Drawn, name: str, path: str, word: str, width: int, one: Wanted, stack: Stack) -> str:
    like = _template(word, one.layer, stack)
    kind = _kind(word, like, stack)
    new = NewNorm(
        path=f"{path}.{name}".lstrip("."),
        kind="layernorm" if kind == "norm" else kind,
        width=width,
        eps=_eps(word, like),
    )
    drawn.norms.append(new)
    drawn.changes.append(Change(where=one.layer.path, site=name, change=f"+ {new.path}, gain 1, bias 0, inside"))
    return name


def _gain(drawn: Drawn, path: str, prefix: str, one: Wanted, step: Step, gain: Gain, features: tuple[int, int]) -> str:
    where = site(step, gain.index)
    name = prefix + where.replace(".", "_")
    start = 1.0 if gain.start is None else number(gain.start, dict(step.symbols))
    axis, width = features
    new = NewGain(path=f"{path}.{name}".lstrip("."), width=width if gain.channel else 0, start=start, axis=axis)
    drawn.gains.append(new)
    drawn.changes.append(
        Change(where=one.layer.path, site=where, change=f"+ {new.path}, a gain that starts at {start:g}")
    )
    return name


def _features(layer: Anatomy, stack: Stack) -> tuple[int, int]:
    """The axis of the stream's features, from the last, and how many: as its norms have them, or else the last."""
    near = [*layer.norms, *(norm for one in stack.layers for norm in one.norms if one.size == layer.size)]
    return near[0].features if near else (-1, layer.size[-1])


def _words(placed: Placed) -> str:
    if placed.origin == "copied":
        return "a copy"
    return f"gain {placed.start:g}, bias 0"


def _at(path: str, placed: Placed, like: Norm | None, layer: int) -> NormAt:
    kind = like.kind if like else placed.word
    return NormAt(
        path=path, site=placed.site, kind=kind, eps=_eps(placed.word, like), layer=layer, origin=placed.origin
    )


def _template(word: str, layer: Anatomy | None, stack: Stack) -> Norm | None:
    """A norm of the model that a new one is made like: of the layer, else of the stack."""
    near = [*(layer.norms if layer else ()), *(norm for one in stack.layers for norm in one.norms)]
    return next((one for one in [*near, *stack.final, *stack.embed] if one.kind in KINDS[word]), None)


def _kind(word: str, like: Norm | None, stack: Stack) -> str:
    if like is not None:
        return WORDS.get(like.kind, "norm")
    return "layernorm" if word == "norm" else word


def _embed(drawn: Drawn, wanted: Formula, stack: Stack) -> None:
    """The norms before the first layer; a stream that goes on from another one keeps what it has."""
    if stack.follows:
        return
    call = _only_norm(wanted)
    if call is not None and not stack.embed:
        first = stack.layers[0]
        name = _added(drawn, call, stack, first.path, "embed_norm", "before the first layer", "embed")
        _surround(drawn, first.path, embed=name)


def _final(drawn: Drawn, wanted: Formula, stack: Stack) -> None:
    """The norms after the last layer; a stream that goes on in another one keeps what it has."""
    if stack.is_followed:
        return
    call = _only_norm(wanted)
    if call is None:
        _drop(drawn, stack.final, "after the last layer")
    elif not stack.final or any(norm.path in drawn.passing for norm in stack.final):
        last = stack.layers[-1]
        if last.path in drawn.slot:
            slot = drawn.slot[last.path]
            parent, _, name = slot.rpartition(".")
            _added(drawn, call, stack, parent, name, "after the last layer", "final")
            drawn.slots.append(slot)
        else:
            name = _added(drawn, call, stack, last.path, "final_norm", "after the last layer", "final")
            _surround(drawn, last.path, closing=name)


def _added(drawn: Drawn, call: Call, stack: Stack, path: str, name: str, side: str, where: str) -> str:
    like = _template(call.word, stack.layers[-1], stack)
    axis, width = _features(stack.layers[-1], stack)
    if drawn.in_pass:
        path = _BESIDE.sub("", path)
    new = NewNorm(
        path=f"{path}.{name}".lstrip("."),
        kind=_kind(call.word, like, stack),
        width=like.width if like else width,
        eps=_eps(call.word, like),
        like=like.path if like else "",
        axes=like.axes if like else (axis,),
    )
    drawn.norms.append(new)
    drawn.changes.append(Change(where=side, site=where, change=f"+ {new.path}, gain 1, bias 0"))
    kind, eps = like.kind if like else call.word, new.eps
    drawn.placed.append(NormAt(path=new.path, site=where, kind=kind, eps=eps, layer=0, origin="new"))
    return f"/{new.path}" if drawn.in_pass else name


_BESIDE = re.compile(r"\.?[A-Za-z_]*[._]?\d+\Z")
"""A layer's own name in a path: its number, and the name of the list that it is in."""


def _surround(drawn: Drawn, path: str, embed: str = "", closing: str = "") -> None:
    old = drawn.scripts.get(path) or Script(path=path, argument=drawn.argument.get(path, ("", 0)))
    new = replace(old, embed=embed or old.embed, closing=closing or old.closing)
    if closing and old.holds_ends:  # after the last sublayer, in what the module computes
        last = old.branches[-1]
        code = (*old.code, Instruction("norm", "closed", (last.after,), closing))
        new = replace(new, code=code, branches=(*old.branches[:-1], replace(last, after="closed")))
    drawn.scripts[path] = new


def _drop(drawn: Drawn, norms: Sequence[Norm], where: str) -> None:
    for norm in norms:
        drawn.passing[norm.path] = True
        drawn.changes.append(Change(where=where, site=norm.site, change=f"- {norm.path}"))


def _only_norm(formula: Formula) -> Call | None:
    """The norm that stands before or after a stack; None for the stream as it is."""
    if str(formula) == STREAM:
        return None
    calls = [call for call in formula.calls if call.word in NORMS]
    if len(calls) != 1 or len(formula.tree.statements) != 1 or formula.tree.statements[0].value != calls[0]:
        raise RewireError(f"Before and after a stack stands x or one norm of it, not {formula}.")
    return calls[0]


def below(path: str, scope: str) -> str:
    """A path below a module.

    Raises:
        RewireError: it is elsewhere.
    """
    if scope and not path.startswith(f"{scope}."):
        raise RewireError(
            f"{path or 'A norm in the open'} works on the stream of {scope} from outside of it; only what is inside "
            "can be moved."
        )
    return path.removeprefix(f"{scope}.") if scope else path
