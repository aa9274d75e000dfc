"""One call of a module whose layers follow another formula than its own code.

The code runs as it is, but its norms let everything pass. What it does to the residual stream is seen function by
function, by the identity of tensors: what a sublayer reads of the stream is replaced by what the formula gives it, and
the sum of the stream with a sublayer's output by the formula's next value of the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import unwrap
from operator import attrgetter
from types import FunctionType
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normula.record.rewiring import Branch, InnerNorm, Instruction, Script
from normula.torch.rewire.move import blended
from normula.torch.rewire.signals import begun, caught, passed

Forward = Callable[..., Any]

FORMULA: Final[Mapping[str, Callable[..., Tensor]]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "stop": lambda a: a.detach(),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "sqrt": torch.sqrt,
    "log": torch.log,
    "ramp": lambda a: torch.clamp(a, 0.0, 1.0),
}
"""What an instruction computes that is no norm and no gain."""

LOOKS: Final = frozenset(
    (
        "__get__", "size", "dim", "numel", "stride", "is_contiguous", "element_size", "__len__", "data_ptr", "nelement",
        "is_floating_point", "get_device", "isinf", "isnan", "isfinite", "ndimension", "is_complex", "storage_offset",
        "register_hook", "requires_grad_", "__hash__", "untyped_storage", "new_zeros", "new_empty", "new_full",
        "new_ones", "zeros_like", "ones_like", "empty_like", "full_like", "retain_grad", "new_tensor",
    )
)  # fmt: skip
"""Functions that ask something of the stream and do not read it."""

LAYOUTS: Final = frozenset(
    (
        "view", "reshape", "permute", "transpose", "flatten", "unflatten", "contiguous", "clone", "to", "float", "half",
        "bfloat16", "double", "type", "type_as", "squeeze", "unsqueeze", "movedim", "swapaxes", "swapdims", "t", "roll",
        "pad", "_pad", "__getitem__", "narrow", "detach", "view_as", "reshape_as", "expand", "expand_as",
        "index_select", "alias", "moveaxis", "flip",
    )
)  # fmt: skip
"""Functions after which a value is the stream still, laid out anew."""

STREAMS: Final = frozenset(("dropout", "dropout_", "clamp", "clamp_", "nan_to_num"))
"""Functions that make another value of the stream, which no formula speaks of."""

DIFFERENCES: Final = frozenset(("sub", "sub_", "__sub__", "__isub__"))
SUMS: Final = frozenset(("add", "add_", "__add__", "__radd__", "__iadd__")) | DIFFERENCES
PRODUCTS: Final = frozenset(
    ("mul", "mul_", "__mul__", "__rmul__", "__imul__", "multiply", "div", "div_", "__truediv__", "__itruediv__")
)


PROJECTIONS: Final = frozenset(("linear", "addmm", "matmul", "__matmul__", "conv1d", "mm"))
SCORES: Final = frozenset(("matmul", "__matmul__", "bmm", "baddbmm"))


OPEN_ATTENTION: Final = FunctionType(
    F.multi_head_attention_forward.__code__,
    {**vars(F), "has_torch_function": lambda _: False},
    "multi_head_attention_forward",
    F.multi_head_attention_forward.__defaults__,
)
"""PyTorch's attention of nn.MultiheadAttention, which is one function to a mode around it, seen from inside."""


def stepped(
    module: nn.Module, script: Script, level: int, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A module's forward, with its layers' formulas."""
    if not script.code and not script.branches:
        return forward(module, *args, **kwargs)
    stream = None if script.argument[1] < 0 else _stream(module, script, args, kwargs)
    stepping = Stepping(module, script, level, stream, [one for one in _tensors((args, kwargs)) if one is not stream])
    with stepping:
        result = forward(module, *args, **kwargs)
    stepping.check(result)
    return result


def around(module: nn.Module, script: Script, call: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a module, with the norms that stand before and after it."""
    if script.embed and not script.holds_ends:
        stream = _stream(module, script, args, kwargs)
        normed = _end(module, script, script.embed, stream)
        args = tuple(normed if one is stream else one for one in args)
        kwargs = {name: normed if one is stream else one for name, one in kwargs.items()}
    result = call(module, *args, **kwargs)
    if script.closing and not script.holds_ends:
        return _with_first(result, lambda stream: _end(module, script, script.closing, stream))
    return result


def _end(module: nn.Module, script: Script, name: str, stream: Tensor) -> Tensor:
    """The stream after a norm that stands before or after this module."""
    norm = attrgetter(name)(module)
    normed: Tensor = blended(module, lambda: stream, lambda: norm(stream)) if script.moves else norm(stream)
    return normed


def _run_as_it_is(function: Callable[..., Any]) -> None:
    """Never compile a function that runs on its own, nor what it calls; inside a compiled caller it is compiled.

    Otherwise, where a graph breaks inside of a layer, a compiled part of it would run its sums under the mode again.
    """
    frames = torch._C._dynamo.eval_frame
    frames.set_code_exec_strategy(
        unwrap(function).__code__, frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    )


_run_as_it_is(stepped)


@dataclass(slots=True, eq=False)
class Seen:
    """A tensor that is the stream, in some layout.

    Attributes:
        tensor: the value.
        aside: whether a norm let it pass whose output only sublayers read.
        layout: what was done to the stream to lay it out so.
        place: the sublayer that `entry` is for.
        entry: what that sublayer reads instead, in this layout.
    """

    tensor: Tensor
    aside: bool = False
    layout: tuple[Callable[[Tensor], Tensor], ...] = ()
    place: int = -1
    entry: Tensor | None = None


@dataclass(slots=True, eq=False)
class Caught:
    """A tensor that is the sum of some sublayers' outputs, caught where their modules gave them."""

    tensor: Tensor
    places: tuple[int, ...]


class Stepping(TorchFunctionMode):
    """One call; entered around the module's own forward.

    Args:
        module: whose code runs.
        script: what its layers do.
        level: how often the module was rewired.
        stream: the tensor that the stream begins as; None where it begins inside.
        foreign: what else the module was given: its sum with the stream is not one with a sublayer's output.
    """

    def __init__(
        self, module: nn.Module, script: Script, level: int, stream: Tensor | None, foreign: Sequence[Tensor]
    ) -> None:
        super().__init__()
        self.module, self.script, self.level, self.foreign = module, script, level, foreign
        self.made = {one.out: one for one in script.code}
        self.values: dict[str, Tensor] = {}
        self.current = "x"
        self.place = 0
        self.shifts = 0
        self.recording = _recording()
        self._end_sublayer()
        self.seen: list[Seen] = []
        self.caught: list[Caught] = []
        self.gains: list[Tensor] = [attrgetter(name)(module) for name in script.gains]
        if stream is not None:
            self._begin(stream)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if func is passed:
            return self._passed(args[0], **kwargs)
        if func is begun:
            return self._begin(args[0])
        if func is caught:
            return self._caught(args[0], **kwargs)
        if name in LOOKS:
            return func(*args, **kwargs)
        if self.running is not None and self.running.inner:
            args, kwargs = self._inside(self.running, func, name, args, kwargs)
        first = self._find(args[0]) if args else None
        if name in PRODUCTS and self._is_scaling(first, args):
            return args[0] if isinstance(args[0], Tensor) and not self._is_gain(args[0]) else args[1]
        if name in SUMS and len(args) > 1 and (total := self._sum(name, first, args, kwargs)) is not None:
            return total
        if first is not None and (name in LAYOUTS or name in STREAMS or _is_masking(name, args)):
            return self._laid_out(first, func, args, kwargs, name not in LAYOUTS)
        if self.caught and args and (one := self._find_caught(args[0])) is not None and name in LAYOUTS | STREAMS:
            return self._output_changed(one, func, args, kwargs)
        return self._read(func, args, kwargs)

    def _end_sublayer(self) -> None:
        """No sublayer runs, until the next one reads the stream."""
        self.was_read = False
        self.running: Branch | None = None
        self.products = 0

    # ---- what the module's own code does to the stream

    def _begin(self, stream: Tensor) -> Tensor:
        """The stream begins; where a norm is wanted there that this module holds, with that."""
        self.seen.append(Seen(stream))
        embed = self.script.embed if self.script.holds_ends else ""
        self.values["x"] = _end(self.module, self.script, embed, stream) if embed else stream
        return stream

    def _passed(self, tensor: Tensor, *, stays: bool) -> Tensor:
        if "x" not in self.values and not self.script.begins:
            self._begin(tensor)
        one = self._find(tensor)
        if one is None:
            return tensor
        alias = _alias(tensor)
        self.seen.append(Seen(alias, one.aside or not stays, one.layout))
        return alias

    def _laid_out(self, one: Seen, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_new: bool) -> Any:
        result = func(*args, **kwargs)
        if not isinstance(result, Tensor):
            return self._read(func, args, kwargs)
        if is_new and not one.aside and not one.layout and not self.was_read:
            self.values[self.current] = result
            self.seen.append(Seen(result))
        elif result is not one.tensor:
            rest = args[1:]
            self.seen.append(Seen(result, one.aside, (*one.layout, lambda tensor: func(tensor, *rest, **kwargs))))
        return result

    def _is_scaling(self, first: Seen | None, args: tuple[Any, ...]) -> bool:
        """Whether a product is one of the factors that the model's own formula has and the new one does not."""
        if len(args) != 2:
            return False
        if any(isinstance(one, Tensor) and self._is_gain(one) for one in args):
            return not all(isinstance(one, Tensor) and self._is_gain(one) for one in args)
        stream = first or self._find(args[1])
        numbers = [one for one in args if isinstance(one, int | float)]
        return self.script.scaled and stream is not None and bool(numbers)

    def _is_gain(self, tensor: Tensor) -> bool:
        return any(tensor is one or tensor._base is one for one in self.gains)

    def _sum(self, name: str, first: Seen | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """The next value of the stream, where a sum is one with a sublayer's output; None where it is another one."""
        second = self._find(args[1])
        caught = [one for one in (self._find_caught(args[0]), self._find_caught(args[1])) if one is not None]
        if len(caught) == 2:
            return self._both(caught, args)
        if first is not None and second is not None:
            return first.tensor if second.aside else second.tensor
        stream, other = (first, args[1]) if first is not None else (second, args[0])
        if stream is None or stream.aside or not isinstance(other, Tensor):
            return None
        if self.shifts and not self.was_read and not caught:
            return self._shifted(stream, other, _sign(name, first) * kwargs.get("alpha", 1))
        if caught:
            return self._carried(stream, max(*caught[0].places, self.place - 1))
        if not self._is_output(stream, other):
            return None
        return self._taken(stream, other, _sign(name, first) * kwargs.get("alpha", 1))

    def _shifted(self, stream: Seen, constant: Tensor, factor: float) -> Tensor:
        """The stream and a constant, which no formula speaks of."""
        self.shifts -= 1
        self._adopt(stream)
        shifted = self.values[self.current] + constant * factor
        self.values[self.current] = shifted
        self.seen.append(Seen(shifted))
        return shifted

    def _is_output(self, stream: Seen, other: Tensor) -> bool:
        """Whether a tensor that is added to the stream is a sublayer's output."""
        if not self.was_read or self.place >= len(self.script.branches) or self.script.branches[self.place].path:
            return False
        if isinstance(other, nn.Parameter) or any(other is one for one in self.foreign):
            return False
        return other.is_floating_point() and other.numel() == stream.tensor.numel()

    def _taken(self, stream: Seen, output: Tensor, factor: float) -> Tensor:
        """A sublayer's output is there: what the stream is now."""
        self._check_recording()
        branch = self.script.branches[self.place]
        self._adopt(stream)
        factor /= branch.factor
        self.values[f"f{self.place}"] = output if factor == 1.0 else output * factor
        self.place += 1
        self._end_sublayer()
        return self._carried(stream, self.place - 1)

    def _adopt(self, stream: Seen) -> None:
        """The layout that the stream is carried on in is that of its values from here on."""
        if stream.layout:
            shape = self.values[self.current].shape
            self.values = {
                name: _apply(stream.layout, value) if value.shape == shape else value
                for name, value in self.values.items()
            }
            self.seen = []

    def _carried(self, stream: Seen, place: int) -> Tensor:
        """The stream after a sublayer; where the formula has no value of it there, what it was."""
        after = self.script.branches[place].after
        self.shifts = self.script.branches[place].shifts
        if after and self._has(after):
            self.current = after
            result = self._value(after)
        else:
            result = _apply(stream.layout, self.values[self.current]) if stream.layout else self.values[self.current]
            result = _alias(result)
        self.seen.append(Seen(result))
        return result

    def _read(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function with what the next sublayer is given in the place of the stream."""
        found = [one for one in _tensors((args, kwargs)) if self._find(one) is not None]
        if not found:
            return func(*args, **kwargs)
        if self.place >= len(self.script.branches):
            result = func(*args, **kwargs)
            if isinstance(result, Tensor) and result.shape == found[0].shape:
                self.seen.append(Seen(result))
            return result
        self.was_read = True
        self.running = self.running or self.script.branches[self.place]
        args, kwargs = _mapped(args, self._entry), _mapped(kwargs, self._entry)
        if func is F.multi_head_attention_forward and self.running.inner:
            with Inside(self, self.running):
                return OPEN_ATTENTION(*args, **kwargs)
        return func(*args, **kwargs)

    def _entry(self, tensor: Tensor) -> Tensor:
        one = self._find(tensor)
        if one is None:
            return tensor
        if one.place != self.place:
            one.entry = _apply(one.layout, self._value(self.script.branches[self.place].entry))
            one.place = self.place
        assert one.entry is not None
        if one.entry is not tensor:
            self._check_recording()
        return one.entry

    def _check_recording(self) -> None:
        """What is put into the stream inside of a checkpoint would not be there when that is computed once more.

        Raises:
            RuntimeError: a checkpoint was begun inside of this module.
        """
        if _recording() != self.recording:
            raise RuntimeError(
                f"{type(self.module).__name__} at {self.script.path or 'the top'} was rewired, and checkpoints a part "
                "of itself: its backward pass would compute the old formula. Checkpoint around the whole module."
            )

    # ---- sublayers that are caught at their modules

    def _caught(self, tensor: Tensor, *, place: int, is_output: bool) -> Tensor:
        """A tensor at the door of a sublayer's module; a mode outside of this one sees it as well."""
        if place < len(self.script.branches) and self.script.branches[place].path:
            tensor = self._caught_output(tensor, place) if is_output else self._caught_input(tensor, place)
        return caught(tensor, place=place, is_output=is_output)

    def _caught_input(self, tensor: Tensor, place: int) -> Tensor:
        if self._find(tensor) is None:
            return tensor
        before, self.place = self.place, place
        result = self._entry(tensor)
        self.place = before
        self.running, self.products = self.script.branches[place], 0
        return _alias(result)

    def _caught_output(self, tensor: Tensor, place: int) -> Tensor:
        factor = self.script.branches[place].factor
        self.values[f"f{place}"] = tensor if factor == 1.0 else tensor / factor
        self.place = max(self.place, place + 1)
        self._end_sublayer()
        self.caught.append(Caught(tensor, (place,)))
        return tensor

    def _output_changed(self, one: Caught, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A sublayer's output, or each of several, after a dropout or in another layout."""
        rest = args[1:]
        for place in one.places:
            self.values[f"f{place}"] = func(self.values[f"f{place}"], *rest, **kwargs)
        result = _alias(self.values[f"f{one.places[0]}"])
        self.caught.append(Caught(result, one.places))
        return result

    def _both(self, caught: list[Caught], args: tuple[Any, ...]) -> Tensor:
        """The sum of outputs: it stands for both, and is not computed."""
        alias = _alias(args[0])
        self.caught.append(Caught(alias, (*caught[0].places, *caught[1].places)))
        return alias

    # ---- norms inside a sublayer

    def _inside(
        self, branch: Branch, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a function with what is to be normalised in them."""
        if branch.writer and name in PROJECTIONS:
            writer = attrgetter(branch.writer)(self.module)
            given = [*args, *kwargs.values()]
            if any(one is writer or getattr(one, "_base", None) is writer for one in given):
                return self._before_writer(branch, name, args, kwargs)
        if name == "scaled_dot_product_attention":
            values = [*args[:3], *(kwargs[key] for key in ("query", "key", "value") if key in kwargs)]
            normed = [self._part(branch, part, one) for part, one in zip("qkv", values, strict=True)]
            return (*normed, *args[3:]), {k: v for k, v in kwargs.items() if k not in ("query", "key", "value")}
        if name == "einsum":
            return self._summed_over(branch, args), kwargs
        if name in SCORES and (places := _data(args, kwargs)) is not None:
            return self._product(branch, args, kwargs, places)
        return args, kwargs

    def _product(
        self, branch: Branch, args: tuple[Any, ...], kwargs: dict[str, Any], places: tuple[Any, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Queries times keys, the first product of two values that flow; then weights times values."""
        self.products += 1
        values: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        left, right = places
        if self.products == 1:
            values[left] = self._part(branch, "q", values[left])
            values[right] = self._part(branch, "k", values[right].transpose(-1, -2)).transpose(-1, -2)
        elif self.products == 2:
            values[right] = self._part(branch, "v", values[right])
        return tuple(values[place] for place in range(len(args))), {name: values[name] for name in kwargs}

    def _summed_over(self, branch: Branch, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The same two products, written with indices: `bhqd,bhkd->bhqk`, `bhqk,bhkd->bhqd`."""
        equation, *given = args
        operands = list(given[0]) if len(given) == 1 else given
        sides, _, out = equation.replace(" ", "").partition("->")
        left, _, right = sides.partition(",")
        if len(operands) != 2 or "." in sides or any(one.dim() <= 2 or _is_weight(one) for one in operands):
            return args
        self.products += 1
        for place, (part, own, other) in enumerate((("q", left, right), ("k", right, left))):
            features = [axis for axis, index in enumerate(own) if index in other and index not in out]
            if self.products == 1 and len(features) == 1:
                operands[place] = self._part_along(branch, part, operands[place], features[0])
        features = [axis for axis, index in enumerate(right) if index in out and index not in left]
        if self.products == 2 and len(features) == 1:
            operands[1] = self._part_along(branch, "v", operands[1], features[0])
        return equation, operands

    def _part_along(self, branch: Branch, part: str, value: Tensor, axis: int) -> Tensor:
        return self._part(branch, part, value.movedim(axis, -1)).movedim(-1, axis)

    def _before_writer(
        self, branch: Branch, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        part = "mid" if branch.word in ("mlp", "moe") else "heads"
        if "input" in kwargs:
            return args, {**kwargs, "input": self._part(branch, part, kwargs["input"])}
        place = 1 if name == "addmm" else 0
        return (*args[:place], self._part(branch, part, args[place]), *args[place + 1 :]), kwargs

    def _part(self, branch: Branch, part: str, value: Tensor) -> Tensor:
        one = next((one for one in branch.inner if one.part == part), None)
        if one is None:
            return value
        if self.script.moves:
            return blended(self.module, lambda: value, lambda: self._inner(one, value))
        return self._inner(one, value)

    def _inner(self, one: InnerNorm, value: Tensor) -> Tensor:
        normed: Tensor = attrgetter(one.place)(self.module)(value)
        return normed if one.factor == 1.0 else normed * one.factor

    # ---- the formula

    def _has(self, name: str) -> bool:
        """Whether a value can be computed: the sublayers that it needs have run."""
        if name in self.values:
            return True
        return name in self.made and all(self._has(one) for one in self.made[name].inputs if isinstance(one, str))

    def _value(self, name: str) -> Tensor:
        """A value of the formula, computed when it is first needed."""
        if name not in self.values:
            if name not in self.made:
                raise self._other_path("a sublayer is run before one whose output it reads")
            self.values[name] = self._computed(self.made[name])
        return self.values[name]

    def _computed(self, one: Instruction) -> Tensor:
        if one.op == "blend":
            old, new = (str(value) for value in one.inputs)
            return blended(self.module, lambda: self._value(old), lambda: self._value(new))
        inputs = [self._value(value) if isinstance(value, str) else value for value in one.inputs]
        if one.op == "gain":
            gain: Tensor = attrgetter(one.place)(self.module)
            return gain
        if one.op == "norm":
            norm = attrgetter(one.place)(self.module)
            normed: Tensor = norm(*inputs, called_at=self.level) if hasattr(norm, "_passes") else norm(*inputs)
            return normed
        return FORMULA[one.op](*inputs)

    def check(self, result: Any) -> None:
        """What the module returns must be the stream at its end.

        Raises:
            RuntimeError: its forward took another path than the one that was read.
        """
        if self.place < len(self.script.branches):
            raise self._other_path(f"{self.place} of its {len(self.script.branches)} sublayers were found")
        last = self.values.get(self.script.branches[-1].after)
        if last is not None and self.script.argument[1] < 0:
            return
        if last is None or not any(self._find(one) is not None for one in _tensors(result)):
            raise self._other_path("it returns something else than its stream")

    def _other_path(self, what: str) -> RuntimeError:
        return RuntimeError(
            f"{type(self.module).__name__} at {self.script.path or 'the top'} was rewired by one forward pass, and "
            f"this one takes another path: {what}. Rewire the model with an example that takes the path that is wanted."
        )

    # ---- tensors

    def _find(self, tensor: Any) -> Seen | None:
        if isinstance(tensor, Tensor):
            for one in reversed(self.seen):
                if one.tensor is tensor:
                    return one
        return None

    def _find_caught(self, tensor: Any) -> Caught | None:
        return next((one for one in reversed(self.caught) if one.tensor is tensor), None)


class Inside(TorchFunctionMode):
    """Inside a function that computes a whole attention: its products are seen as those of a module are."""

    def __init__(self, stepping: Stepping, branch: Branch) -> None:
        super().__init__()
        self.stepping, self.branch = stepping, branch

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = self.stepping._inside(self.branch, func, getattr(func, "__name__", ""), args, kwargs or {})
        return func(*args, **kwargs)


def _recording() -> tuple[bool, Any]:
    """How gradients are recorded just now: a checkpoint that is begun changes it. A compiler sees to its own."""
    if torch.compiler.is_compiling():
        return True, None
    return torch.is_grad_enabled(), torch._C._autograd._top_saved_tensors_default_hooks(True)


def _sign(name: str, first: Seen | None) -> float:
    """That of what is added to the stream, or taken from it."""
    return -1.0 if name in DIFFERENCES and first is not None else 1.0


def _is_weight(tensor: Tensor) -> bool:
    """Whether a tensor is a parameter, or a part of one."""
    return isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter)


def _data(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
    """The places of the two factors of a product, where both flow: neither is a parameter."""
    given: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
    places = [place for place, one in given.items() if isinstance(one, Tensor) and one.dim() > 2]
    if len(places) < 2 or any(isinstance(given[place], nn.Parameter) for place in places[-2:]):
        return None
    return places[-2], places[-1]


def _is_masking(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a function multiplies a value by a number for each token that is not learned."""
    mask = args[1] if name in PRODUCTS and len(args) > 1 else None
    return isinstance(mask, Tensor) and mask.dim() > 1 and mask.shape[-1] == 1 and not mask.requires_grad


def _stream(module: nn.Module, script: Script, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    name, place = script.argument
    stream = kwargs[name] if name in kwargs else args[place] if place < len(args) else None
    if not isinstance(stream, Tensor):
        raise RuntimeError(
            f"{type(module).__name__} at {script.path or 'the top'} was rewired with its stream as argument {name!r}, "
            f"and is called without it. Call it as it was called when it was rewired."
        )
    return stream


def _alias(tensor: Tensor) -> Tensor:
    """The same value as another tensor."""
    alias: Tensor = torch.ops.aten.alias.default(tensor)
    return alias


def _apply(layout: Sequence[Callable[[Tensor], Tensor]], tensor: Tensor) -> Tensor:
    for one in layout:
        tensor = one(tensor)
    return tensor


def _tensors(value: Any, depth: int = 3) -> list[Tensor]:
    """The tensors in tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        return [value]
    if depth and isinstance(value, list | tuple):
        return [one for part in value for one in _tensors(part, depth - 1)]
    if depth and isinstance(value, dict):
        return [one for part in value.values() for one in _tensors(part, depth - 1)]
    return []


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(_mapped(one, change) for one in value)
    if type(value) is dict:
        return {name: _mapped(one, change) for name, one in value.items()}
    return value


def _with_first(result: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """What a module returned, with its first tensor changed."""
    if isinstance(result, Tensor):
        return change(result)
    if isinstance(result, dict):
        name = next(name for name, one in result.items() if isinstance(one, Tensor))
        result[name] = change(result[name])
        return result
    values = list(result)
    place = next(place for place, one in enumerate(values) if isinstance(one, Tensor))
    values[place] = change(values[place])
    return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)
