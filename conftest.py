"""What must hold before any test module or doctest is imported."""

import os
from importlib.util import find_spec

for threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[threads] = "1"
os.environ["MPLBACKEND"] = "Agg"

collect_ignore = [] if find_spec("jax") and find_spec("flax") else ["src/normula/flax", "tests/flax"]
