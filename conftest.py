"""What must hold before any test module or doctest is imported."""

import os
from importlib.util import find_spec

for threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[threads] = "1"
os.environ["MPLBACKEND"] = "Agg"
# small stacks are compiled once and run once: without XLA's optimisations that takes a quarter of the time
QUICK = ("backend_optimization_level=0", "cpu_use_fusion_emitters=false", "cpu_parallel_codegen_split_count=1")
os.environ.setdefault("XLA_FLAGS", " ".join(f"--xla_{flag}" for flag in QUICK))

collect_ignore = [] if find_spec("jax") and find_spec("flax") else ["src/normula/flax", "tests/flax"]
