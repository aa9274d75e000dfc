"""Which inputs a transformers model takes, and of which shape: from its forward's signature and words, and its config.

The docstring of a forward says `input_ids (torch.LongTensor of shape (batch_size, sequence_length))`: the names in such
a shape are sizes that the config knows, or free ones, for which small numbers serve.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from normula.torch.sources.ask import Ask, ask_for
from normula.torch.sources.fields import flat, parts

FREE = {
    "batch_size": 2,
    "sequence_length": 8,
    "target_sequence_length": 6,  # unlike the encoder's, so that a mix-up shows
    "num_frames": 4,
    "height": 64,
    "width": 64,
    "channels": 1,
    "image_channels": 3,
}
"""Sizes that no config fixes."""
FRAMES, SAMPLES, MELS = 96, 8000, 80
"""Of audio where the config is silent: frames of a spectrogram, samples of a wave (half a second), mel bands."""
SIDE = 4
"""Patches along each side of an image that is given as a list of patches, before merging."""

_SAME_NAMES = {
    "image_size": ("image_size", "img_size", "resolution", "input_size"),
    "num_channels": ("num_channels", "in_channels", "in_chans", "input_channels", "image_channels"),
    "feature_dim": (
        "num_mel_bins",
        "feature_size",
        "num_mel",
        "n_mels",
        "input_feat_per_channel",
        "input_feat_size",
        "input_dim",
    ),
    "patch_size": ("patch_size", "spatial_patch_size"),
    "temporal_patch_size": ("temporal_patch_size", "patch_temporal"),
    "merge_size": ("spatial_merge_size", "merge_size"),
    "num_frames": ("num_frames", "frames_per_clip"),
    "num_input_channels": ("num_input_channels", "input_size"),
    "context_length": ("context_length",),
}


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of a forward.

    Attributes:
        names: all of them, in order.
        required: those without a default.
        shapes: of those whose docstring says one, its text.
        dtypes: of those whose docstring says that they hold whole numbers or truth values, the type.
        objects: those whose docstring says that they are objects of a class of the library's own.
    """

    names: tuple[str, ...]
    required: tuple[str, ...]
    shapes: Mapping[str, str]
    dtypes: Mapping[str, torch.dtype]
    objects: tuple[str, ...]


def signature(model: Any) -> Signature:
    """What a model's forward takes."""
    names, required = list[str](), list[str]()
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        names.append(name)
        if parameter.default is parameter.empty:
            required.append(name)
    shapes, dtypes, objects = dict[str, str](), dict[str, torch.dtype](), list[str]()
    for name, words in re.findall(r"^\s*(\w+) \((.*)\):?\s*$", type(model).forward.__doc__ or "", re.MULTILINE):
        if shape := re.search(r"of shape\s*[`']?[(\[](.*?)[)\]][`']?(?:[,\s]|$)", words):
            shapes[name] = shape[1]
        if kind := re.search(r"(Long|Int|Bool)Tensor", words):
            dtypes[name] = torch.bool if kind[1] == "Bool" else torch.long
        if words.startswith("`~"):
            objects.append(name)
    return Signature(tuple(names), tuple(required), shapes, dtypes, tuple(objects))


class Guess:
    """Guesses inputs for one model.

    Attributes:
        model: of transformers.
        takes: its forward's arguments.
    """

    def __init__(self, model: Any, config: Any) -> None:
        self.model, self.takes = model, signature(model)
        self.fields = list(parts(config))

    def first(self) -> dict[str, Ask]:
        """The inputs of a first try: the main one, those without a default, a decoder's ids."""
        main = getattr(self.model, "main_input_name", "input_ids")
        names = [main] if isinstance(main, str) else list(main)
        names = [name for name in names if name in self.takes.names] + list(self.takes.required)
        if not names:
            names = [name for name in _USUAL if name in self.takes.names][:1] or list(self.takes.names[:1])
        if self.config("is_encoder_decoder") and "decoder_input_ids" in self.takes.names:
            names.append("decoder_input_ids")
        return {name: self.ask(name) for name in dict.fromkeys(names)}

    def ask(self, name: str) -> Ask:
        """One input by its name."""
        if special := self._special(name):
            return special
        dtype = self.takes.dtypes.get(name)
        shape = self.takes.shapes.get(name)
        sizes = tuple(self.sizes(name, shape)) if shape is not None else self._by_name(name)
        sizes = self._sound(name, sizes)
        ask = ask_for(name, sizes, dtype)
        if dtype == torch.bool:
            return ask
        return Ask(shape=sizes, fill=ask.fill, dtype=torch.long if ask.fill == "boxes" and dtype else None)

    def config(self, *names: str) -> Any:
        """The first value that is set under one of these names, in the config or in one inside it."""
        for name in names:
            for fields in self.fields:
                if fields.get(name) is not None:
                    return fields[name]
        return None

    def size(self, *names: str, otherwise: int) -> int:
        """The same as one number."""
        value = self.config(*names)
        while isinstance(value, (list, tuple)) and len(value):
            value = value[0]
        if isinstance(value, dict):
            value = value.get("height", next(iter(value.values()), None))
        return value if type(value) is int and value > 0 else otherwise

    # ---- inputs that belong together

    def _special(self, name: str) -> Ask | None:
        takes = self.takes.names
        merge = self.size(*_SAME_NAMES["merge_size"], otherwise=2)
        side = SIDE * merge
        grid = next((other for other in takes if other.endswith("grid_thw")), "")
        if name.endswith("grid_thw"):
            return Ask(shape=(1, 3), fill="rows", rows=(1, side, side))
        if name.endswith("grid_hw"):
            return Ask(shape=(1, 2), fill="rows", rows=(side, side))
        if name.endswith("merge_sizes"):
            return Ask(shape=(1,), fill="rows", rows=(merge,))
        if grid and (name.startswith("pixel_values") or name == "hidden_states"):
            return Ask(shape=(side * side, self._patch()))
        if "spatial_shapes" in takes:
            batch = FREE["batch_size"]
            flat = {"pixel_values": (batch, side * side, self._patch(frames=1))}
            if name == "spatial_shapes":
                return Ask(shape=(batch, 2), fill="rows", rows=(side, side))
            if name in flat:
                return Ask(shape=flat[name])
            if name == "pixel_attention_mask":
                return Ask(shape=(batch, side * side), fill="ones")
        if "pixel_position_ids" in takes or "image_position_ids" in takes:
            batch = FREE["batch_size"]
            if name == "pixel_values":
                return Ask(shape=(batch, side * side, self._patch(frames=1)))
            if name in ("pixel_position_ids", "image_position_ids"):
                return Ask(shape=(batch, side * side, 2), fill="grid")
        if name in ("image_sizes", "target_sizes"):
            square = self.size(*_SAME_NAMES["image_size"], otherwise=FREE["height"])
            if name == "target_sizes":  # counted in patches
                square //= self.size(*_SAME_NAMES["patch_size"], otherwise=1)
            return Ask(shape=(FREE["batch_size"], 2), fill="rows", rows=(square, square))
        if name.startswith("past_") or name.startswith("future_"):
            return self._series(name)
        return None

    def _patch(self, frames: int | None = None) -> int:
        """How many numbers one patch of an image has."""
        patch = self.size(*_SAME_NAMES["patch_size"], otherwise=14)
        channels = self.size(*_SAME_NAMES["num_channels"], otherwise=3)
        return channels * (frames or self.size(*_SAME_NAMES["temporal_patch_size"], otherwise=1)) * patch * patch

    def _series(self, name: str) -> Ask | None:
        """Inputs of models of time series: what is past is as long as the context and its longest lag."""
        length = self.config("context_length")
        if length is None:
            return None
        lags = self.config("lags_sequence") or [0]
        steps = length + max(lags) if name.startswith("past_") else self.size("prediction_length", otherwise=1)
        batch = FREE["batch_size"]
        if name.endswith("time_features"):
            return Ask(shape=(batch, steps, self.size("num_time_features", otherwise=0)))
        channels = self.config("num_input_channels")
        if channels is None and (width := self.size("input_size", otherwise=1)) > 1:
            channels = width
        shape = (batch, steps) if channels is None else (batch, steps, channels)
        return Ask(shape=shape, fill="ones" if "mask" in name else "normal", dtype=None)

    # ---- shapes in words

    def _by_name(self, name: str) -> tuple[int, ...]:
        """A shape for an argument of which nothing is said."""
        batch, side = FREE["batch_size"], self.size(*_SAME_NAMES["image_size"], otherwise=FREE["height"])
        channels = self.size(*_SAME_NAMES["num_channels"], otherwise=3)
        if "video" in name:
            return (batch, self._named("", "num_frames"), channels, side, side)
        if "pixel" in name or "image" in name:
            return (batch, channels, side, side)
        if "input_values" in name or "wave" in name:
            return (batch, SAMPLES)
        if "features" in name or "mel" in name:
            frames = () if "mask" not in name else (batch, FRAMES)
            return frames or (batch, FRAMES, self._named("", "feature_dim"))
        if "embeds" in name or "hidden_states" in name:
            return (batch, FREE["sequence_length"], self._named("", "hidden_size"))
        return (batch, FREE["sequence_length"])

    def _sound(self, name: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Where the docstring is a general one: spectrograms have bands, waves many samples, images two sides."""
        sides = list(flat(self.config(*_SAME_NAMES["image_size"])))
        if "pixel" in name and len(sides) == 2 and len(sizes) >= 4:
            return (*sizes[:-2], *sides)
        if name.startswith("input_features") and "mask" not in name and len(sizes) < 3:
            return self._by_name(name)
        if name == "bbox":
            return (FREE["batch_size"], FREE["sequence_length"], 4)
        if name == "input_values" and sizes[-1] < FRAMES and len(sizes) < 4 and not self.config("num_mel_bins"):
            return (*sizes[:-1], SAMPLES)
        return sizes

    def sizes(self, name: str, shape: str) -> Iterator[int]:
        for text in re.split(r",\s*(?![^()]*\))", shape.replace("`", "").strip("() ")):
            if text.strip():
                yield max(self._size(name, text.strip()), 1)

    def _size(self, name: str, text: str) -> int:
        """One size: a number, a name, or a sum or product of such."""
        try:
            tree = ast.parse(re.sub(r"[^\w.+*/() -]", "", text), mode="eval").body
        except SyntaxError:
            tree = ast.Name(id=text)
        return self._value(name, tree)

    def _value(self, name: str, tree: ast.expr) -> int:
        match tree:
            case ast.Constant(value=int(number)):
                return number
            case ast.BinOp(left=left, right=right, op=op):
                a, b = self._value(name, left), self._value(name, right)
                if isinstance(op, ast.Add):
                    return a + b
                if isinstance(op, ast.Sub):
                    return a - b
                return a * b if isinstance(op, ast.Mult) else a // max(b, 1)
            case ast.Attribute(attr=word) | ast.Name(id=word):
                return self._named(name, word)
        return 1

    def _named(self, name: str, word: str) -> int:
        """The size that a name in a shape stands for."""
        word = {"seq_length": "sequence_length", "seq_len": "sequence_length", "seqlen": "sequence_length"}.get(
            word, word
        )
        if word in ("image_size", "frame_size") or (word in ("height", "width") and "pixel" in name):
            return self.size(*_SAME_NAMES["image_size"], otherwise=FREE["height"])
        if "length" in word or word in ("frames", "num_samples", "max_num_frames"):
            if "input_values" in name or "audio_values" in name or word == "num_samples":
                return SAMPLES if self.config("num_mel_bins") is None or "sequence" in word else self._mel_length()
            if "features" in name or word == "feature_sequence_length":
                return FRAMES
            return FREE["target_sequence_length"] if word.startswith(("target", "decoder")) else FREE["sequence_length"]
        if word in ("feature_dim", "feature_size", "num_mel_bins"):
            return self.size(*_SAME_NAMES["feature_dim"], otherwise=MELS)
        if word in _SAME_NAMES:
            return self.size(*_SAME_NAMES[word], otherwise=FREE.get(word, 3))
        if word in ("hidden_size", "dim"):
            return self.size("hidden_size", "d_model", "dim", "n_embd", otherwise=64)
        if word == "num_patches":
            side = self.size(*_SAME_NAMES["image_size"], otherwise=FREE["height"])
            return (side // self.size(*_SAME_NAMES["patch_size"], otherwise=16)) ** 2
        if word == "num_boxes" and "input_ids" in self.takes.names:
            return FREE["sequence_length"]
        return FREE.get(word) or self.size(word, otherwise=1 if word.startswith(("num_", "max_num")) else 4)

    def _mel_length(self) -> int:
        return self.size("max_length", otherwise=FRAMES)


_USUAL = ("input_ids", "pixel_values", "input_features", "input_values", "inputs_embeds", "hidden_states")
