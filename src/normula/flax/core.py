"""The functional core: a network as functions of its parameters, which are a tree of arrays.

    net = network(Spec(placement="pre", layers=12, width=64))
    params = init(net, seed=0)
    y = apply(net, params, x)

Layers run in a scan over depth, so that the time to compile does not grow with depth; `unroll` runs them one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from normula.flax.check import check_arguments, check_tree
from normula.flax.context import Context, context, dropped
from normula.flax.layer import StepRunner, operator_form, run_group
from normula.flax.network import Group, Network
from normula.flax.tree import Tree, at, leaves, put, stacked, to_tree
from normula.oracle.initial import Law, laws
from normula.oracle.initial import weights as initial_weights
from normula.spec import Step

Numbers = tuple[tuple[tuple[Array, ...], ...], ...]


class States(NamedTuple):
    """All that a pass shows.

    Attributes:
        stream: (depth + 1, B, T, D): x before the first layer and after each, as it is.
        closed: what leaves the stack, after the final norm where there is one.
        output: what the head makes of it; `closed` itself where there is no head.
    """

    stream: Array
    closed: Array
    output: Array


def init(network: Network, *, seed: int | None = None, key: Array | None = None, dtype: Any = None) -> Tree:
    """The parameters at their start.

    Args:
        network: of which spec.
        seed: of the same numbers as every other framework; None for the spec's own.
        key: a JAX key instead: other numbers of the same laws, drawn where the computation runs.
        dtype: of the parameters; None for JAX's default.
    """
    dtype = jnp.result_type(float) if dtype is None else dtype
    if key is not None:
        tree = _drawn(network, key, dtype)
    else:
        spec = network.spec if seed is None else replace(network.spec, seed=seed)
        tree = to_tree(network, initial_weights(spec, given=network.given), dtype)
    return _with_given(network, tree, jax.random.key(0) if key is None else key, dtype)


def apply(
    network: Network,
    params: Mapping[str, Any],
    inputs: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    source: ArrayLike | None = None,
    source_mask: ArrayLike | None = None,
    training_step: ArrayLike = 0,
    deterministic: bool | None = True,
    key: Array | None = None,
    dtype: Any = None,
    unroll: bool = False,
    remat: str | None = None,
) -> Array:
    """The output of a network.

    Args:
        network: what runs.
        params: its parameters, as `init` gives them.
        inputs: vectors (B, T, D); ids (B, T) where the spec has a vocabulary; values (B, T, P) where it has features; a
            stack that computes every token by itself takes (..., D).
        mask: (B, T), true where a token is real; None where all are.
        source, source_mask: what goes into the encoder, and which of it is real.
        training_step: what `step` stands for.
        deterministic: whether nothing is dropped; None is refused where the spec has dropout.
        key: of the dropout.
        dtype: that values are computed in; None for that of the parameters. Statistics are float32 or wider.
        unroll: run the layers one after another instead of in a scan.
        remat: compute a layer again in the backward pass: `full`, or the name of one of `jax.checkpoint_policies`.

    Returns:
        (B, T, D); logits (B, T, V) with a vocabulary; (B, classes) for a classifier.

    Raises:
        ValueError: an input or parameters that do not fit; the message says what must hold.
    """
    return _run(
        network,
        params,
        inputs,
        mask,
        source=source,
        source_mask=source_mask,
        training_step=training_step,
        deterministic=deterministic,
        key=key,
        dtype=dtype,
        unroll=unroll,
        remat=remat,
        keep=False,
    ).output


def states(
    network: Network, params: Mapping[str, Any], inputs: ArrayLike, mask: ArrayLike | None = None, **others: Any
) -> States:
    """Run the stack and keep the stream after every layer; arguments as for `apply`."""
    return _run(network, params, inputs, mask, **{**others, "keep": True})


def _run(
    network: Network,
    params: Mapping[str, Any],
    inputs: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    source: ArrayLike | None = None,
    source_mask: ArrayLike | None = None,
    training_step: ArrayLike = 0,
    deterministic: bool | None = True,
    key: Array | None = None,
    dtype: Any = None,
    unroll: bool = False,
    remat: str | None = None,
    keep: bool,
) -> States:
    check_tree(network, params)
    inputs = jnp.asarray(inputs)
    mask, source, source_mask = (None if one is None else jnp.asarray(one) for one in (mask, source, source_mask))
    dtype = check_arguments(network, params, inputs, mask, source, source_mask, dtype, deterministic, key, remat)
    return _compiled(
        network,
        params,
        numbers_of(network, dtype),
        inputs,
        mask,
        source,
        source_mask,
        jnp.asarray(training_step),
        None if deterministic else key,
        dtype=jnp.dtype(dtype),
        unroll=unroll,
        remat=remat,
        keep=keep,
    )


@partial(jax.jit, static_argnames=("network", "dtype", "unroll", "remat", "keep"))
def _compiled(
    network: Network,
    params: Tree,
    numbers: Numbers,
    inputs: Array,
    mask: Array | None,
    source: Array | None,
    source_mask: Array | None,
    training_step: Array,
    key: Array | None,
    *,
    dtype: Any,
    unroll: bool,
    remat: str | None,
    keep: bool,
) -> States:
    memory = None
    if network.encoder is not None:
        assert source is not None
        memory = _compiled(
            network.encoder,
            params["encoder"],
            numbers_of(network.encoder, dtype),
            source,
            source_mask,
            None,
            None,
            training_step,
            None if key is None else jax.random.fold_in(key, 1),
            dtype=dtype,
            unroll=unroll,
            remat=remat,
            keep=False,
        ).output
    x, key = embedded(network, params, inputs, dtype, key)
    around = surroundings(network, params, x, mask, memory, source_mask, training_step, key)
    return after_embedding(network, params, numbers, x, mask, around, unroll, remat, keep)


def after_embedding(
    network: Network,
    params: Tree,
    numbers: Numbers,
    x: Array,
    mask: Array | None,
    around: Context,
    unroll: bool = False,
    remat: str | None = None,
    keep: bool = True,
) -> States:
    """The stack and the head on an embedded x, with the stream after every layer where it is to be kept."""
    streams = begin(network, params, x, around)
    stream = [streams["x"][None]] if keep else []
    for group, own_numbers in zip(network.groups, numbers, strict=True):
        streams, kept = _group(
            network, group, params.get(group.name, {}), own_numbers, streams, around, unroll, remat, keep
        )
        stream += [kept] if keep else []
    closed = end(network, params, streams, around)
    return States(jnp.concatenate(stream) if keep else closed[:0], closed, read_out(network, params, closed, mask))


def _group(
    network: Network,
    group: Group,
    own: Tree,
    numbers: Sequence[Sequence[Array]],
    streams: dict[str, Any],
    around: Context,
    unroll: bool,
    remat: str | None,
    keep: bool,
) -> tuple[dict[str, Any], Array | None]:
    """All layers of a group, one after another or in a scan."""
    keys = None if around.key is None else jax.random.split(jax.random.fold_in(around.key, group.first), group.count)

    def layer(streams: dict[str, Any], one: Any) -> tuple[dict[str, Any], Array | None]:
        own, numbers, key = one
        streams = run_group(network, group, own, numbers, streams, around._replace(key=key))
        return streams, streams["x"] if keep else None

    if remat is not None:
        policy = None if remat == "full" else getattr(jax.checkpoint_policies, remat)
        layer = jax.checkpoint(layer, policy=policy, prevent_cse=unroll)
    every = (own, numbers, keys)
    if not unroll:
        return jax.lax.scan(layer, streams, every, length=group.count)  # there may be no arrays to tell it by
    kept: list[Any] = []
    for place in range(group.count):
        streams, x = layer(streams, jax.tree.map(lambda array, place=place: array[place], every))
        kept.append(x)
    return streams, jnp.stack(kept) if keep else None


def numbers_of(network: Network, dtype: Any) -> Numbers:
    """The numbers that depend on depth, for every group, step and layer, in the type that the stream is computed in."""
    return tuple(
        tuple(tuple(jnp.asarray(number, dtype) for number in step) for step in group.numbers)
        for group in network.groups
    )


def embedded(
    network: Network, params: Tree, inputs: Array, dtype: Any, key: Array | None
) -> tuple[Array, Array | None]:
    """The input as vectors in this type; and the key of the dropout that comes after."""
    spec = network.spec
    if not spec.embeds:
        return inputs.astype(dtype), key
    if spec.features is None:
        x = params["embed"]["tokens"]["embedding"].astype(dtype)[inputs]
    else:
        own = params["embed"]["features"]
        x = inputs.astype(dtype) @ own["kernel"].astype(dtype) + own["bias"].astype(dtype)
    if spec.positions == "learned":
        x = x + params["embed"]["positions"]["embedding"].astype(dtype)[: inputs.shape[1]]
    if key is not None:
        here, key = jax.random.split(key)
        x = dropped(x, spec.dropout, here, 0)
    return x, key


def surroundings(
    network: Network,
    params: Tree,
    x: Array,
    mask: Array | None,
    memory: Array | None,
    memory_mask: Array | None,
    training_step: Array,
    key: Array | None,
) -> Context:
    """The context of a pass over the embedded x."""
    relative = params["relative"]["embedding"] if network.spec.positions == "relative" else None
    return context(network.spec, x, mask, relative, memory, memory_mask, training_step, key)


def begin(network: Network, params: Tree, x: Array, around: Context) -> dict[str, Any]:
    """The streams as they enter the first layer."""
    x = step_outside(network, network.plan.embed, params, {"x": x}, around)
    streams = {"x": x}
    for name, start in network.plan.starts:
        streams[name] = step_outside(network, start, params, {"x": x}, around)
    form = operator_form(network)
    return streams if form is None else {"x": form.begin(x, network.plan.sublayers_total)}


def end(network: Network, params: Tree, streams: dict[str, Any], around: Context) -> Array:
    """What leaves the stack."""
    form = operator_form(network)
    if form is not None:
        streams = {"x": form.end(streams["x"], at(params, ("final", "read")))}
    return step_outside(network, network.plan.final, params, streams, around)


def step_outside(
    network: Network, step: Step, params: Tree, streams: dict[str, Array], around: Context, runner: Any = StepRunner
) -> Array:
    """x after a step before or after the layers."""
    one = runner(network, step, params.get(step.prefix, {}), 1, 0, None, around)
    x: Array = one.run(step.formula.tree, streams)["x"]
    return x


def read_out(network: Network, params: Tree, x: Array, mask: Array | None) -> Array:
    """The head, on each token or, for a classifier, on the mean of the real ones."""
    spec = network.spec
    if not network.reads_out:
        return x
    if spec.classes is not None:
        share = jnp.ones_like(x[..., 0]) if mask is None else mask.astype(x.dtype)
        count = jnp.maximum(share.sum(axis=1, keepdims=True), 1)  # the mean of no token is 0
        x = jnp.einsum("bt,btd->bd", share / count, x)
    kernel = params["embed"]["tokens"]["embedding"].T if spec.tied else params["head"]["kernel"]
    return x @ kernel.astype(x.dtype)


def _drawn(network: Network, key: Array, dtype: Any) -> Tree:
    """Every array from its law; a number depends on the key and the array's name alone."""
    known = {name: (law, parameter.shape) for name, parameter, law, _ in laws(network.plan)}

    def one(name: str) -> Array:
        law, shape = known[name]
        return _from_law(law, jax.random.fold_in(key, crc32(name.encode())), shape, dtype)

    tree: Tree = {}
    for leaf in leaves(network):
        own = [one(name) for name in leaf.names]
        own = [jnp.swapaxes(array, -1, -2) for array in own] if leaf.is_matrix else own
        put(tree, leaf.path, jnp.stack(own) if leaf.stacked else own[0])
    return tree


def _from_law(law: Law, key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    match law.kind:
        case "fixed":
            return jnp.full(shape, law.scale, dtype)
        case "normal":
            return law.scale * jax.random.normal(key, shape, dtype)
        case "uniform":
            return law.scale * jax.random.uniform(key, shape, dtype, minval=-1)
        case "unit":
            return jnp.eye(*shape, dtype=dtype) if len(shape) == 2 else jnp.eye(shape[0], dtype=dtype)[int(law.scale)]


def _with_given(network: Network, tree: Tree, key: Array, dtype: Any) -> Tree:
    """The tree with the parameters of the sublayers that came as modules."""
    x = jnp.zeros((1, 1, network.spec.width), dtype)
    for group in network.groups:
        for step in group.steps:
            for call in step.sublayers:
                kind = step.kind(call)
                if kind in network.given:
                    made = network.given[kind][group.first : group.first + group.count]
                    name = f"{group.name}.{'.'.join(group.path(step, call.index))}"
                    keys = jax.random.split(jax.random.fold_in(key, crc32(name.encode())), group.count)
                    drawn = made[0].start is None
                    own = jax.vmap(made[0].init, (0, None))(keys, x) if drawn else stacked([one.start for one in made])
                    put(tree, (group.name, *group.path(step, call.index)), own)
    if network.encoder is not None and network.given:
        tree["encoder"] = _with_given(network.encoder, tree.get("encoder", {}), jax.random.fold_in(key, 1), dtype)
    return tree
