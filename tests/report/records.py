"""Small records made by hand: every number is chosen, none is measured."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from normula.catalog import placement
from normula.formula import Formula
from normula.record import (
    Comparison,
    Contestant,
    DepthPoint,
    Environment,
    Finding,
    Flow,
    GrowthLaw,
    Outcome,
    Pass,
    PopularPoint,
    Share,
    Statement,
    StepFlow,
    Trial,
    WeightFlow,
)

ENVIRONMENT = Environment(
    versions={"normula": "0.1.0", "numpy": "2.0.0", "torch": "2.4.0"},
    python="3.11.7",
    machine="x86_64 Linux",
    device="cpu",
)
STUCK_LOSS = 3.35


def contestant(name: str, title: str, formula: str, **changes: Any) -> Contestant:
    """A placement with nothing around the stack."""
    drawn = Formula(formula)
    made = Contestant(
        name=name,
        title=title,
        placement={"name": name, "formula": drawn.text, "embed": "x", "final": "x"},
        skip=drawn.skip,
        words=drawn.words,
        svg=drawn.svg(),
        predictions=((f"What is said of {title}.", "Somebody 2020"),),
    )
    return replace(made, **changes)


PRE = contestant("pre", "Pre-LN", "x + f(norm(x))", placement=placement("pre").to_dict())
POST = contestant("post", "Post-LN", "norm(x + f(x))", placement=placement("post").to_dict())


def trial(
    name: str,
    init: str,
    lr: float,
    warmup: int,
    seed: int,
    loss: float,
    outcome: Outcome = "learned",
    curve: Sequence[float] | None = None,
) -> Trial:
    """A run whose loss falls in a straight line from 6 to where it ends."""
    steps = 10
    straight = [6 + (loss - 6) * i / (steps - 1) for i in range(steps)]
    return Trial(
        identity=f"{name}-{init}-{lr:g}-{warmup}-{seed}",
        name=name,
        init=init,
        lr=lr,
        warmup=warmup,
        seed=seed,
        curve=tuple(straight if curve is None else curve),
        loss=loss,
        stuck_loss=STUCK_LOSS,
        outcome=outcome,
        seconds=2.0,
        tokens_per_second=1000.0,
    )


def trials(names: Sequence[str] = ("pre", "post")) -> tuple[Trial, ...]:
    """A full grid: the second placement is stuck with Xavier weights."""
    return tuple(
        trial(name, init, lr, warmup, seed, loss, "stuck" if loss > 3 else "learned")
        for place, name in enumerate(names)
        for init in ("xavier", "normal")
        for lr in (0.001, 0.01)
        for warmup in (0, 5)
        for seed in (0, 1)
        for loss in [(3.4 if place == 1 and init == "xavier" else 2.5) + 0.01 * seed]
    )


def step(layer: int, name: str, size: float, gradient: float, skip: float, cosine: float = 0.5) -> StepFlow:
    return StepFlow(
        layer=layer,
        name=name,
        rms_before=size,
        rms_after=size,
        branch_rms=0.5 * size,
        skip_rms=size,
        gradient=gradient,
        skip_gradient=skip,
        token_cosine=cosine,
        step_cosine=0.9,
        largest=3 * size,
    )


def flow(
    name: str, training_steps: Sequence[int] = (0, 5), growth: float = 1.1, layers: int = 3, **changes: Any
) -> Flow:
    """A stream that grows by a factor a layer and a gradient that falls by it."""
    passes = tuple(
        Pass(
            seed=seed,
            training_step=training_step,
            loss=5.0,
            steps=tuple(
                step(layer, word, (1 + 0.1 * seed) * growth**layer, growth ** (layer - layers), 0.1**layer)
                for layer in range(1, layers + 1)
                for word in ("attn", "mlp")
            ),
            weights=(WeightFlow(name="layers.0.norm.weight", norm=8.0, gradient=0.1),),
            input_gradient=0.5,
            skip_gradient=0.1,
            output_gradient=1.0,
            norm_passes=0.9,
        )
        for seed in (0, 1)
        for training_step in training_steps
    )
    made = Flow(
        name=name,
        spec={"init": "xavier", "layers": layers, "width": 8},
        probe="loss",
        passes=passes,
        growth=GrowthLaw(kind="flat", exponent=0.0, r2=1.0),
        findings=(Finding(kind="growth", weight="note", text=f"The stream of {name} grows."),),
        environment=ENVIRONMENT,
    )
    return replace(made, **changes)


def depth_point(name: str, depth: int, value: float = 1.0, **changes: Any) -> DepthPoint:
    band = (value, 0.9 * value, 1.1 * value)
    made = DepthPoint(
        name=name,
        init="xavier",
        width=64,
        depth=depth,
        input_gradient=band,
        skip_gradient=band,
        rms=band,
        token_cosine=(0.9, 0.8, 0.95),
        void=False,
    )
    return replace(made, **changes)


def popular_points() -> tuple[PopularPoint, ...]:
    """The popular figure with its own values at depth 20."""
    rows = (
        ("pre", "sum", 1, 17.5, math.nan),
        ("pre", "sum", 20, 35.7888, math.nan),
        ("pre", "random", 1, 1.0, math.nan),
        ("pre", "random", 20, 1.98, math.nan),
        ("post", "sum", 1, 5e-7, 2.5e-8),
        ("post", "sum", 20, 5.26e-7, 2.1e-8),
        ("post", "random", 1, 1.0, 0.99),
        ("post", "random", 20, 1.4726, 0.98),
    )
    return tuple(
        PopularPoint(name=name, depth=depth, probe=probe, input_gradient=value, norm_passes=passes)
        for name, probe, depth, value, passes in rows
    )


def comparison(**changes: Any) -> Comparison:
    """Pre-LN against Post-LN, all parts there."""
    made = Comparison(
        contestants=(PRE, POST),
        settings={
            "layers": 3,
            "width": 8,
            "heads": 2,
            "norm": "layernorm",
            "steps": 10,
            "lr": [0.001, 0.01],
            "warmup": [0, 5],
            "init": ["xavier", "normal"],
            "seeds": 2,
            "depths": [5, 50],
            "probe": "random",
            "data": None,
            "workers": None,
        },
        data={"name": "a small text", "digest": "0123456789abcdef", "stuck_loss": STUCK_LOSS},
        flows=(flow("pre"), flow("post", growth=1.0)),
        depths=tuple(
            depth_point(name, depth, value)
            for name, depth, value in (("pre", 5, 1.0), ("pre", 50, 0.9), ("post", 5, 0.5), ("post", 50, 1e-10))
        ),
        popular=popular_points(),
        trials=trials(),
        planned=32,
        shares=(
            Share(factors=("initial weights",), share=0.5),
            Share(factors=("placement", "initial weights"), share=0.4),
            Share(factors=("all else, seeds too",), share=0.097),
            Share(factors=("warmup",), share=0.003),
        ),
        verdict=(
            Statement(kind="headline", text="Post-LN does not learn with Xavier weights."),
            Statement(kind="outcome", text="Pre-LN: 16 learned of 16; best loss 2.50 [2.50, 2.51]."),
            Statement(kind="difference", text="With Xavier weights, Pre-LN ends 0.90 nats below Post-LN."),
            Statement(kind="factor", text="What decided most is the initial weights."),
            Statement(kind="flow", text="Pre-LN: the gradient keeps its size."),
            Statement(kind="caution", text="Small models and 2 seeds."),
        ),
        environment=ENVIRONMENT,
        seconds=65.4,
    )
    return replace(made, **changes)


def interrupted() -> Comparison:
    """Nothing was finished."""
    return comparison(
        flows=(),
        depths=(),
        popular=(),
        trials=(),
        shares=(),
        verdict=(Statement(kind="caution", text="Interrupted: 0 of 32 runs were finished."),),
        data={"name": "a small text", "digest": "0", "stuck_loss": math.nan},
    )


def exploding() -> Comparison:
    """Values at and beyond the ends of what a float holds, and runs of every outcome."""
    huge = (
        trial("pre", "xavier", 0.001, 0, 0, math.nan, "diverged", (math.nan,)),
        trial("pre", "xavier", 0.001, 0, 1, 1e30, "diverged", (6.0, 1e30, 1e308, 1e30)),
        trial("pre", "xavier", 0.01, 0, 0, math.nan, "diverged", (6.0, 7.0, math.inf)),
        trial("post", "xavier", 0.001, 0, 0, 2.5),
        trial("post", "xavier", 0.001, 0, 1, 3.4, "stuck"),
    )
    growing = flow("pre", growth=1e100)
    bad = flow("post")
    broken = step(1, "attn", math.nan, math.inf, 0.0, math.nan)
    passes = tuple(replace(one, steps=(broken, *one.steps[1:])) for one in bad.passes)
    return comparison(
        trials=huge,
        flows=(growing, replace(bad, passes=passes)),
        depths=(
            depth_point("pre", 5, 1e30),
            depth_point("pre", 50, 1e307),
            depth_point("post", 5, 0.0),
            depth_point("post", 50, math.nan),
        ),
        popular=(
            *popular_points()[:4],
            PopularPoint(name="post", depth=20, probe="sum", input_gradient=0.0, norm_passes=0.0),
            PopularPoint(name="post", depth=20, probe="random", input_gradient=math.inf, norm_passes=1.0),
        ),
        shares=(Share(factors=("placement",), share=math.nan),),
    )


def many(number: int = 7) -> Comparison:
    """More placements than fit side by side, some with long formulas for titles."""
    formulas = ["x + f(norm(x))", "norm(x + f(x))", "x + norm(f(norm(x)))", "x + norm(f(x))", "n = norm(x); n + f(n)"]
    formulas += ["norm((2*L)**(1/4) * x + f(x))", "x + gain(1e-5, 'channel') * f(norm(x))", "x + f(x)"]
    placed = []
    for place, formula in enumerate(formulas[:number]):
        title = formula if place % 2 else f"Title {place}"
        placed.append(contestant(f"p{place}", title, formula, predictions=()))
    names = [one.name for one in placed]
    return comparison(
        contestants=tuple(placed),
        flows=tuple(flow(name) for name in names),
        depths=tuple(depth_point(name, depth) for name in names for depth in (5, 50)),
        popular=(),
        trials=trials(names),
        planned=16 * number,
    )


def hostile() -> Comparison:
    """Names, sentences and drawings that would run, load or garble something in a careless page."""
    text = "<script>alert(\"1\")</script> & 'q' $x_{$ \x1b[31m \x00 \ud800 ]]> </style>"
    bad = Contestant(
        name=text,
        title=text,
        placement={"name": text, "formula": text, "embed": text, "final": text, "streams": {text: text}},
        skip=text,
        words=text,
        svg='<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
        predictions=((text, text),),
    )
    short = replace(bad, name="$a$<b>", title="$a$<b>", svg='<svg onload="alert(1)"/>')
    names = (text, "$a$<b>")
    return comparison(
        contestants=(bad, short),
        flows=tuple(flow(name, findings=(Finding(kind="x", weight="void", text=text),)) for name in names),
        depths=tuple(depth_point(name, depth) for name in names for depth in (5, 50)),
        popular=tuple(replace(point, name=names[point.name == "post"]) for point in popular_points()),
        trials=tuple(replace(one, init=text, identity=text) for one in trials(names)),
        settings={"init": [text], "norm": text},
        data={"name": text, "digest": text},
        verdict=tuple(Statement(kind=kind, text=text) for kind in ("headline", "caution", text)),
        shares=(Share(factors=(text, "$b$"), share=1.0),),
    )
