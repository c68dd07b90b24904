"""Limits every numerical library to one thread; imported before any of them is."""

import os

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
# These make OpenBLAS take kernels of another machine.
OVERRIDES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
XLA_FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

os.environ.update(dict.fromkeys(THREADS, "1"))
os.environ["XLA_FLAGS"] = XLA_FLAGS
for name in OVERRIDES:
    os.environ.pop(name, None)
