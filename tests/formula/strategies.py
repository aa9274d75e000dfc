"""Random formulas, as texts, for hypothesis.

A text grows from `x` outwards: one operation after another is written around what stands there, and now and then
it is given a name, so that values are read once, several times, or under a name that was used before.
"""

from hypothesis import strategies as st

NUMBERS = ("2", "3", "0.5", "1e-2", "0.81", "L", "l", "sqrt(2*L)", "(2*L)**(1/4)", "(8*L)**(-1/4)", "L**2/3", "2/3")
SUMS = ("(L + 1)", "(2*l - 1)", "log(L + 1)", "(1 + 1/L)", "sqrt(L + l)", "0.9**l")
GAINS = ("gain(0.1)", "gain(0.7, 'channel')", "silu(gain(0.5))", "(1 - gain(0.3))", "gain(1/sqrt(L))", "2*gain(1)")
NORMS = ("norm", "norm", "norm", "layernorm", "rmsnorm", "l2norm", "dyt", "derf")
BUILT = ("attn", "mlp")
ALL = ("attn", "cross", "mlp", "moe", "ssm", "conv", "pool", "fourier")
INNER = {"f": ("qk", "qkv", "out", "mid"), "attn": ("qk", "qkv", "out"), "mlp": ("mid",)}


@st.composite
def steps(draw: st.DrawFn, built: bool = True) -> str:
    """Formulas with `f`; `built` are those that the oracle can run, with a stream `y` beside x."""
    return draw(_texts(("f",), built))


@st.composite
def layers(draw: st.DrawFn, built: bool = True) -> str:
    """Formulas of a whole layer, with one to three sublayers."""
    words = draw(st.lists(st.sampled_from(BUILT if built else ALL), min_size=1, max_size=3))
    return draw(_texts(tuple(words), built))


def formulas(built: bool = True) -> st.SearchStrategy[str]:
    """Steps and layers alike."""
    return steps(built) | layers(built)


@st.composite
def _texts(draw: st.DrawFn, words: tuple[str, ...], built: bool) -> str:
    lines: list[str] = []
    now = "x"
    for word in words:
        now = _grown(draw, now, lines, built)
        now = _sublayer(draw, word, now)
    now = _grown(draw, now, lines, built)
    return "; ".join([*lines, f"x = {now}" if draw(st.booleans()) else now])


def _grown(draw: st.DrawFn, now: str, lines: list[str], built: bool) -> str:
    """Up to four operations around what stands there."""
    norm, number = st.sampled_from(NORMS), st.sampled_from(NUMBERS + SUMS + (() if built else ("a", "Ld/Le")))
    gain = st.sampled_from(GAINS if built else (*GAINS, "gain"))
    stream = st.sampled_from(("x", "x", "y"))
    for kind in draw(st.lists(st.sampled_from(OPERATIONS), max_size=4)):
        match kind:
            case "norm":
                now = f"{draw(norm)}({now})"
            case "norm with a start":
                now = f"{draw(norm.filter('l2norm'.__ne__))}({now}, gain={draw(number)})"
            case "skip":
                now = f"{draw(stream)} + ({now})"
            case "scaled skip":
                now = f"({now}) + {draw(number)} * {draw(stream)}"
            case "minus":
                now = f"{draw(stream)} - ({now})"
            case "factor":
                now = f"{draw(number)} * ({now})"
            case "quotient":
                now = f"({now}) / {draw(number)}"
            case "gain":
                now = f"{draw(gain)} * ({now})"
            case "stop":
                now = f"x + stop({now})"
            case "named once":
                now = _named(lines, "t", now)
            case "named":
                name = _named(lines, "h", now)
                now = f"{name} + {draw(number)} * {draw(norm)}({name})"
            case "named number":
                now = f"{_named(lines, 'c', draw(number))} * ({now})"
            case "gain twice":
                name = _named(lines, "g", draw(gain))
                now = f"{name} * ({now}) + (1 - {name}) * x"
            case "stream":
                lines.append(f"x = {now}")
                now = "x"
            case "other stream":
                lines.append(f"y = y + {draw(number)} * ({now})")
                now = f"x + {draw(norm)}(y)"
    return now


OPERATIONS = (
    *("norm", "skip") * 3,
    *("norm with a start", "scaled skip", "minus", "factor", "quotient", "gain", "stop"),
    *("named once", "named", "named number", "gain twice", "stream", "other stream"),
)


def _sublayer(draw: st.DrawFn, word: str, argument: str) -> str:
    sites = draw(st.sampled_from((*[None] * 4, *INNER.get(word, ()))))
    return f"{word}({argument}{f', {sites}={draw(st.sampled_from(NORMS))}' if sites else ''})"


def _named(lines: list[str], letter: str, text: str) -> str:
    name = f"{letter}{len(lines)}"
    lines.append(f"{name} = {text}")
    return name
