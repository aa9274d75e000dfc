"""What a model's error says about its inputs: which others to try next.

An error names an argument that is missing, or a size that another one must equal. Inputs that a user gave stay.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from types import TracebackType

import torch

from normula.torch.sources.ask import Ask
from normula.torch.sources.guess import Guess

Asks = Mapping[str, Ask]


def candidates(error: BaseException, guess: Guess, asks: Asks, fixed: Collection[str]) -> Iterator[dict[str, Ask]]:
    """What to try next, the likeliest first."""
    text = str(error)
    if wave := re.search(r"expected input\[1, (\d+), (\d+)\] to have 1 channels", text):  # a batch taken for channels
        batch, samples = int(wave[1]), int(wave[2])
        for name, ask in asks.items():
            if name not in fixed and ask.shape == (batch, samples):
                yield {**asks, name: replace(ask, shape=(batch, 1, samples))}
    if "tensor of ids" in text:  # as stacks that are built here say it
        for name, ask in asks.items():
            if name not in fixed and ask.fill == "normal":
                yield {**asks, name: replace(ask, fill="ids")}
    for name in (*_missing(text), *_none_read(error.__traceback__, guess), *_named(text, guess)):
        if name in guess.takes.names and name not in asks and name not in _NEVER:
            yield {**asks, name: guess.ask(name)}
    yield from _planted(text, asks, guess, fixed)
    yield from _told(text, asks, guess, fixed)
    yield from _multiples(text, asks, fixed)
    yield from _other_values(error, text, asks, fixed)
    yield from _other_sizes(text, asks, fixed)
    yield from _other_ranks(error, text, asks, guess, fixed)
    yield from _last_resorts(guess, asks, fixed)


_NEVER = {
    "use_cache",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "labels",
    "cache",
    "past_key_values",
    "encoder_outputs",
    "inference_session",
}


def _missing(text: str) -> list[str]:
    """Arguments that Python itself names."""
    if re.search(r"missing \d+ required", text):
        return re.findall(r"'(\w+)'", text)
    return []


def _named(text: str, guess: Guess) -> list[str]:
    """Arguments that a message mentions; embeddings last, since what they embed is easier to make."""
    words = [word for word in re.findall(r"\w+", text.lower()) if word in guess.takes.names]
    return sorted(dict.fromkeys(words), key=lambda word: ("embed" in word, "mask" in word, words.index(word)))


def _none_read(trace: TracebackType | None, guess: Guess) -> list[str]:
    """Arguments of the forward that are None in the line that failed, or in the lines that led there."""
    frames = list[TracebackType]()
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    found = list[str]()
    for place in reversed(frames):
        code, here = place.tb_frame.f_code, place.tb_frame.f_locals
        line = linecache.getline(code.co_filename, place.tb_lineno)
        for word in re.findall(r"\w+", line):
            if word in guess.takes.names and word in here and here[word] is None and not word.startswith("output"):
                found.append(word)
    return sorted(dict.fromkeys(found), key=lambda word: ("embed" in word, "mask" in word))


def _planted(text: str, asks: Asks, guess: Guess, fixed: Collection[str]) -> Iterator[dict[str, Ask]]:
    """Tokens in the text that stand for an image's or a sound's features: as many as there are features."""
    match = re.search(r"tokens:?\s*(\d+).*?features:?\s*(\d+)", text, re.DOTALL)
    ids = asks.get("input_ids")
    if match is None or ids is None or "input_ids" in fixed or len(ids.shape) != 2:
        return
    for word in ("image", "video", "audio"):
        token = guess.config(f"{word}_token_id", f"{word}_token_index", f"{word}_token")
        if word in text.lower() and type(token) is int:
            batch, others = ids.shape[0], tuple(pair for pair in ids.planted if pair[0] != token)
            each, rest = divmod(int(match[2]), batch)
            if rest == 0 and 0 < each <= 1 << 13:
                planted = (*others, (token, each))
                length = 8 + sum(count for _, count in planted)
                yield {
                    name: replace(ask, shape=(batch, length), planted=planted if name == "input_ids" else ask.planted)
                    if ask.shape == ids.shape and name not in fixed
                    else ask
                    for name, ask in asks.items()
                }


def _told(text: str, asks: Asks, guess: Guess, fixed: Collection[str]) -> Iterator[dict[str, Ask]]:
    """A shape that the message spells out."""
    if match := re.search(r"tensor of shape \(([\w, ]*[a-z][\w, ]*)\)", text):
        for name, ask in asks.items():
            if name not in fixed and ask.fill == "normal":
                yield {**asks, name: replace(ask, shape=tuple(guess.sizes(name, match[1])))}
    if match := re.search(r"\((\d+)\*(\d+)\) doesn't match model \((\d+)\*(\d+)\)", text):
        for name, ask in asks.items():
            if name not in fixed and ask.shape[-2:] == (int(match[1]), int(match[2])):
                yield {**asks, name: replace(ask, shape=(*ask.shape[:-2], int(match[3]), int(match[4])))}


def _multiples(text: str, asks: Asks, fixed: Collection[str]) -> Iterator[dict[str, Ask]]:
    """A length that must be a multiple of something."""
    if match := re.search(r"multiple of [^\d]*?(?:`[^`]*` )?\(?(\d+)", text):
        unit = int(match[1])
        for length in sorted({n for ask in asks.values() for n in ask.shape[1:] if n % unit}, reverse=True):
            new = max(length // unit, 1) * unit
            yield {
                name: ask if name in fixed else replace(ask, shape=tuple(new if n == length else n for n in ask.shape))
                for name, ask in asks.items()
            }


def _other_values(error: BaseException, text: str, asks: Asks, fixed: Collection[str]) -> Iterator[dict[str, Ask]]:
    """Smaller ids where an embedding is short; ids where they were floats, and the reverse."""
    if isinstance(error, IndexError) or "out of range" in text or "out of bounds" in text:
        for name, ask in asks.items():
            if ask.fill == "ids" and name not in fixed and ask.last_id > 2:
                yield {**asks, name: replace(ask, last_id=8 if ask.last_id > 8 else 2)}
    wants_whole = re.search(r"scalar type:? (Long|Int)|\(Long|indices.*(Long|Int)|as indices", text)
    wants_float = re.search(
        r"expected scalar type Float|Long and Float|Input type \((Long|long)|not implemented for", text
    )
    wants_bool = re.search(r"[Bb]ool", text)
    for name, ask in asks.items():
        if name in fixed:
            continue
        if wants_whole and ask.fill == "normal":
            yield {**asks, name: replace(ask, fill="ids")}
        if wants_float and ask.fill in ("ids", "ones", "zeros") and ask.dtype is None:
            yield {**asks, name: replace(ask, dtype=torch.float32)}
        if wants_bool and ask.fill == "ones" and ask.dtype is not torch.bool:
            yield {**asks, name: replace(ask, dtype=torch.bool)}


_WANTED = (
    r"to have (?P<want>\d+) channels, but got (?P<got>\d+)",
    r"expected .*?length (?P<want>\d+)\D+found (?P<got>\d+)",
    r"of length (?P<want>\d+), but found (?P<got>\d+)",
    r"image size \((?P<got>\d+)\*\d+\) doesn't match model \((?P<want>\d+)",
    r"\(\d+x(?P<got>\d+) and (?P<want>\d+)x\d+\)",
    r"size of tensor a \((?P<got>\d+)\) must match the size of tensor b \((?P<want>\d+)\)",
    r"size of tensor a \((?P<want>\d+)\) must match the size of tensor b \((?P<got>\d+)\)",
    r"(?:expected|should be|must be)\D+(?P<want>\d+)\D+(?:got|but|found|is)\D+(?P<got>\d+)",
    r"(?:got|found|is|has)\D+(?P<got>\d+)\D+(?:expected|should be|must be)\D+(?P<want>\d+)",
    r"normalized_shape=\[(?P<want>\d+)\].*?\[(?:\d+, )*(?P<got>\d+)\]",
    r"(?P<got>\d+) vs\.? (?P<want>\d+)",
)


def _other_sizes(text: str, asks: Asks, fixed: Collection[str]) -> Iterator[dict[str, Ask]]:
    """A size that was received, where it stands in an input, becomes the one that was wanted."""
    for pattern in _WANTED:
        match = re.search(pattern, text, re.DOTALL)
        if match is None:
            continue
        want, got = int(match["want"]), int(match["got"])
        if want == got or want == 0 or want > 1 << 18:
            continue
        for name, ask in asks.items():
            if name in fixed or ask.fill == "rows" or got not in ask.shape:
                continue
            if want in ask.shape and len(ask.shape) > 2:  # two axes the other way round
                shape = list(ask.shape)
                i, j = _last(shape, got), _last(shape, want)
                shape[i], shape[j] = shape[j], shape[i]
                yield {**asks, name: replace(ask, shape=tuple(shape))}
            if "image" in pattern or (ask.shape.count(got) == 2 and ask.shape[-1] == got):
                yield {**asks, name: replace(ask, shape=tuple(want if n == got else n for n in ask.shape))}
            yield {**asks, name: ask.resized(_last(list(ask.shape), got), want)}
        yield from _in_proportion(want, got, asks, fixed)


def _in_proportion(want: int, got: int, asks: Asks, fixed: Collection[str]) -> Iterator[dict[str, Ask]]:
    """A length that a model divides before it compares, in all inputs of that length."""
    lengths = {n for ask in asks.values() for n in ask.shape[1:] if got > 1 and n != got and n > 1}
    for length in sorted(n for n in lengths if (n % got == 0 or got % n == 0) and n * want % got == 0):
        new = length * want // got
        yield {
            name: replace(ask, shape=(*ask.shape[:1], *(new if n == length else n for n in ask.shape[1:])))
            if name not in fixed
            else ask
            for name, ask in asks.items()
        }


def _last(shape: list[int], size: int) -> int:
    return len(shape) - 1 - shape[::-1].index(size)


def _other_ranks(
    error: BaseException, text: str, asks: Asks, guess: Guess, fixed: Collection[str]
) -> Iterator[dict[str, Ask]]:
    """One axis more, or one less."""
    more = re.search(r"not enough values to unpack \(expected (\d+), got (\d+)", text)
    fewer = re.search(r"too many values to unpack \(expected (\d+)", text)
    dims = re.search(r"[Ee]xpected (?:\d+D[^\d]*or )?(\d+)D.*?input.*?(?:size|got|but).*?\[([\d, ]+)\]", text)
    axis = "Dimension out of range" in text or isinstance(error, IndexError) or "dims" in text or "dimension" in text
    for name, ask in asks.items():
        if name in fixed or ask.fill == "rows":
            continue
        rank = len(ask.shape)
        wants_more = (more and rank - int(more[2]) in (0, 1)) or (dims and rank < int(dims[1]))
        wants_fewer = (fewer and rank > int(fewer[1])) or (dims and rank > int(dims[1]))
        patch = guess.size("patch_size", otherwise=14)
        if dims and rank == 2 and ask.shape[1] == 3 * patch * patch:
            yield {**asks, name: replace(ask, shape=(ask.shape[0], 3, patch, patch))}
        if (wants_more or axis) and rank < 5:
            middle = guess.size("num_frames", "frames_per_clip", otherwise=1) if rank == 4 else 1
            yield {**asks, name: replace(ask, shape=(*ask.shape[:1], middle, *ask.shape[1:]))}
        if wants_fewer and rank > 1:
            yield {**asks, name: replace(ask, shape=(*ask.shape[:1], *ask.shape[2:]))}


def _last_resorts(guess: Guess, asks: Asks, fixed: Collection[str]) -> Iterator[dict[str, Ask]]:
    """Without a hint: longer and larger, one example alone, other usual inputs."""
    for name, ask in asks.items():
        if name in fixed or ask.fill == "rows":
            continue
        if "features" in name and len(ask.shape) == 3:  # bands before frames, whatever the docstring says
            yield {**asks, name: replace(ask, shape=(ask.shape[0], ask.shape[2], ask.shape[1]))}
        if len(ask.shape) >= 4 and ask.shape[-1] == ask.shape[-2] != 224:
            yield {**asks, name: replace(ask, shape=(*ask.shape[:-2], 224, 224))}
        if ask.fill in ("ids", "normal") and 2 <= len(ask.shape) <= 3 and ask.shape[1] < 1 << 14:
            length = max(32, 2 * ask.shape[1])
            yield {
                key: other.resized(1, length) if len(other.shape) > 1 and other.shape[1] == ask.shape[1] else other
                for key, other in asks.items()
            }
    if not fixed and any(ask.shape and ask.shape[0] == 2 for ask in asks.values()):
        yield {
            name: ask.resized(0, 1) if ask.shape and ask.shape[0] == 2 and ask.fill != "rows" else ask
            for name, ask in asks.items()
        }
    for name in ("input_ids", "pixel_values", "input_features", "input_values", "decoder_input_ids"):
        if name in guess.takes.names and name not in asks:
            yield {**asks, name: guess.ask(name)}
