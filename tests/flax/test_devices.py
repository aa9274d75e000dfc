"""A stack over eight devices, with data and tensor axes: the numbers of one device, to float32 rounding.

The devices are made by a flag that must stand before jax starts, so each test is a script in a process of its own.
"""

import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import jax, jax.numpy as jnp, numpy as np
from flax import linen as nn
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from normula.flax import apply, linen, network, nnx, shardings, to_arrays
from tests.cases import PADDED, random_inputs, random_weights, small
from tests.flax.models import params_of
from tests.near import assert_gradients_near, assert_near

assert jax.device_count() == 8
mesh = jax.make_mesh((2, 4), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)
TENSOR = (("heads", "tensor"), ("mlp", "tensor"), ("vocab", "tensor"))
WIDTH = (("embed", "tensor"),)  # the axis that every norm is over
ROUNDING = 1e-5  # sums over four devices are in another order: some tens of roundings of 2^-24


def spread(tree, shardings):
    return jax.device_put(tree, shardings)


def outcome(net, params, x, mask):
    def loss(params):
        output = apply(net, params, x, mask)
        direction = jnp.sin(3.0 * jnp.arange(output.size)).reshape(output.shape)
        return (direction * output).sum(), output

    (_, output), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    return output, to_arrays(net, jax.tree.map(np.asarray, gradient))


def compare(spec, rules, whole=None):
    net, params = network(spec), params_of(spec)
    x = np.asarray(random_inputs(spec, batch=4, tokens=5))
    x = jnp.asarray(x if spec.vocab else x.astype(np.float32))
    mask = jnp.asarray(np.concatenate([PADDED, PADDED]))
    expected = whole or outcome(net, params, x, mask)
    data = NamedSharding(mesh, P("data"))
    own = shardings(net, mesh, rules)
    output, gradient = outcome(net, spread(params, own), jax.device_put(x, data), jax.device_put(mask, data))
    assert_near(output, expected[0], ROUNDING, "output")
    assert_gradients_near(gradient, expected[1], ROUNDING)
    return own
"""

CASES = {
    "heads, hidden units and vocabulary": """
for placement in ("pre", "post", "peri"):
    spec = small(placement, width=16, heads=4, hidden=32, vocab=8, causal=True)
    own = compare(spec, TENSOR)
    assert own["layers"]["mlp"]["f"]["up"]["kernel"].spec == P(None, None, "tensor")
    assert own["layers"]["mlp"]["f"]["down"]["kernel"].spec == P(None, "tensor", None)
    assert own["embed"]["tokens"]["embedding"].spec == P("tensor", None)
""",
    "the width that a norm is over": """
for norm in ("layernorm", "rmsnorm", "l2norm"):
    for spec in (
        small("post", width=16, heads=4, hidden=32, norm=norm),
        small("x + f(norm(x), qkv=norm, out=norm, mid=norm)", width=16, heads=4, hidden=32, norm=norm),
    ):
        own = compare(spec, WIDTH)
        if norm != "l2norm":
            assert [one.spec for one in jax.tree.leaves(own["layers"]["mlp"]) if one.spec == P(None, "tensor")]
# the input too: a token's features lie on four devices
spec = small("post", width=16, heads=4, hidden=32)
net, params, x = network(spec), params_of(spec), jnp.asarray(random_inputs(spec, batch=4), jnp.float32)
expected = outcome(net, params, x, None)
found = outcome(net, params, jax.device_put(x, NamedSharding(mesh, P("data", None, "tensor"))), None)
assert_near(found[0], expected[0], ROUNDING)
assert_gradients_near(found[1], expected[1], ROUNDING)
# one norm alone
for kind in ("layernorm", "rmsnorm", "l2norm"):
    norm, wide = linen.Norm(kind), 2000 + jax.random.normal(jax.random.key(0), (8, 64))
    variables = norm.init(jax.random.key(0), wide)
    y = jax.jit(norm.apply)(variables, jax.device_put(wide, NamedSharding(mesh, P("data", "tensor"))))
    assert len(y.addressable_shards) == 8
    # far from zero the mean itself is rounded: 2000 has the spacing 1.2e-4
    assert_near(y, norm.apply(variables, wide), 1e-3 if kind == "layernorm" else ROUNDING)
""",
    "mixed layers, experts and operators": """
compare(small("mix-ln", layers=4, width=16, heads=4, hidden=32, vocab=8, causal=True), TENSOR)
compare(small("pre", sublayers=("attn", "moe"), experts=4, width=16, heads=4, hidden=32), (("experts", "tensor"),))
compare(small("hyper-connections", width=16, heads=4, hidden=32), TENSOR + WIDTH)
""",
    "Linen and NNX": """
spec = small("pre", width=16, heads=4, hidden=32, vocab=8, causal=True)
x = jax.device_put(jnp.asarray(random_inputs(spec, batch=4)), NamedSharding(mesh, P("data")))
plain = linen.Stack(spec)
expected = plain.apply(plain.start(), jnp.asarray(random_inputs(spec, batch=4)))

stack = linen.Stack(spec, partitioned=True)
specs = nn.get_partition_spec(jax.eval_shape(stack.init, jax.random.key(0), x))
by_flax = nn.logical_to_mesh_sharding(specs, mesh, TENSOR)["params"]
own = shardings(stack, mesh, TENSOR)
same = jax.tree.map(lambda one, other: one.is_equivalent_to(other, 3), by_flax, own)
assert all(jax.tree.leaves(same)), same
params = spread(plain.start()["params"], own)
assert_near(jax.jit(plain.apply)({"params": params}, x), expected, ROUNDING)

# parameters that are made where they lie
made = jax.jit(plain.init, out_shardings={"params": own, "formula": NamedSharding(mesh, P())})(jax.random.key(0), x)
assert made["params"]["layers"]["mlp"]["f"]["up"]["kernel"].sharding.spec == P(None, None, "tensor")

model = nnx.Stack(spec)
model.load(spread(model.params(), shardings(model, mesh, TENSOR)))
assert model.layers["mlp"]["f"]["up"]["kernel"][...].sharding.spec == P(None, None, "tensor")
assert_near(model(x), expected, ROUNDING)
""",
    "what is refused": """
import pytest
with pytest.raises(ValueError, match="does not divide on the mesh"):
    shardings(network(small(width=16, heads=4, vocab=7)), mesh, TENSOR)
with pytest.raises(ValueError, match="a rule puts heads on 'model', and the mesh has data, tensor"):
    shardings(network(small()), mesh, (("heads", "model"),))
with pytest.raises(ValueError, match="axis_types"):
    shardings(network(small()), jax.make_mesh((2, 4), ("data", "tensor"), axis_types=(AxisType.Explicit,) * 2), TENSOR)
""",
}


@pytest.mark.parametrize("case", CASES)
def test_over_eight_devices(case: str) -> None:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    code = textwrap.dedent(SCRIPT) + CASES[case]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
