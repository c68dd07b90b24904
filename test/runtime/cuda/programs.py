"""CUDA C written by hand, as codegen would emit it, for the tests of the CUDA runtime."""

import pytest

from tinytensor.errors import DeviceError
from tinytensor.ops.program import LaunchShape, Program, TensorMap
from tinytensor.runtime.cuda.nvrtc import find_library

ELEMENTS = 1000
THREADS = 128
BLOCKS = -(-ELEMENTS // THREADS)
GRID = (BLOCKS, 1, 1)

STACK_INTS = 1024

NUMBER = "const int i = blockIdx.x * blockDim.x + threadIdx.x;"


def missing_nvrtc():
    try:
        find_library()
    except DeviceError as error:
        return str(error)
    return ""


needs_nvrtc = pytest.mark.skipif(bool(missing_nvrtc()), reason=missing_nvrtc())


def add_program(number):
    """Fill float buffer 0 with buffer 1 plus a number."""
    source = f"""extern "C" __global__ void add(float *out, const float *x) {{
  {NUMBER}
  if (i < {ELEMENTS}) out[i] = x[i] + {number}.0f;
}}
"""
    return Program("add", source, 2, 0, launches=(LaunchShape("add", GRID, THREADS, 0),))


def two_launch_program():
    """Twice buffer 1 to the workspace, then the workspace backwards to buffer 0."""
    arguments = "(float *out, const float *x, float *workspace)"
    last = ELEMENTS - 1
    source = f"""extern "C" __global__ void twice{arguments} {{
  {NUMBER}
  if (i < {ELEMENTS}) workspace[i] = 2.0f * x[i];
}}
extern "C" __global__ void backwards{arguments} {{
  {NUMBER}
  if (i < {ELEMENTS}) out[i] = workspace[{last} - i];
}}
"""
    launches = [LaunchShape(entry, GRID, THREADS, 0) for entry in ("twice", "backwards")]
    return Program("two", source, 2, 4 * ELEMENTS, launches=tuple(launches))


def shared_program(shared_bytes):
    """Turn buffer 1 around through the last bytes of the block's shared memory."""
    first = shared_bytes // 4 - THREADS
    source = f"""extern "C" __global__ void turn(float *out, const float *x) {{
  extern __shared__ float shared[];
  shared[{first} + threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = shared[{first} + {THREADS - 1} - threadIdx.x];
}}
"""
    shape = LaunchShape("turn", (1, 1, 1), THREADS, shared_bytes)
    return Program("shared", source, 2, 0, launches=(shape,))


def stack_program():
    """Fill and read an array at indices from memory; a thread has too few registers for it."""
    source = f"""extern "C" __global__ void pick(int *out, const int *x) {{
  int kept[{STACK_INTS}];
  for (int i = 0; i < {STACK_INTS}; i++) kept[x[i]] = x[i] * i;
  out[threadIdx.x] = kept[x[threadIdx.x]];
}}
"""
    return Program("stack", source, 2, 0, launches=(LaunchShape("pick", (1, 1, 1), 32, 0),))


ROWS, COLUMNS, STRIDE = 5, 12, 20  # what the map shows of a buffer whose rows are longer
BOX_ROWS, BOX_COLUMNS = 8, 16


def tensor_map(swizzle_bytes):
    """Buffer 1 as COLUMNS of each row, in boxes."""
    shape, box = (COLUMNS, ROWS), (BOX_COLUMNS, BOX_ROWS)
    return TensorMap(1, 0, 4, shape, (4 * STRIDE,), box, swizzle_bytes)


def bulk_program(node):
    """Write the box at (1, 4) of buffer 1 to buffer 0, through the bulk copy engine (sm_90a)."""
    nbytes = 4 * BOX_ROWS * BOX_COLUMNS
    source = f"""struct __align__(64) TensorMap {{ unsigned long long words[16]; }};
extern "C" __global__ void box(
    float *out, const float *x, const __grid_constant__ TensorMap map) {{
  __shared__ __align__(128) float tile[{BOX_ROWS * BOX_COLUMNS}];
  __shared__ __align__(8) unsigned long long barrier;
  const unsigned at = (unsigned)__cvta_generic_to_shared(&barrier);
  const unsigned to = (unsigned)__cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) {{
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], {nbytes};" :: "r"(at) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes [%0], [%1, {{%2, %3}}], [%4];"
      :: "r"(to), "l"(&map), "r"(4), "r"(1), "r"(at) : "memory");
  }}
  __syncthreads();
  unsigned done = 0;
  while (!done)
    asm volatile("{{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0;"
      " selp.u32 %0, 1, 0, p; }}" : "=r"(done) : "r"(at) : "memory");
  out[threadIdx.x] = tile[threadIdx.x];
}}
"""
    shape = LaunchShape("box", (1, 1, 1), BOX_ROWS * BOX_COLUMNS, 0, (node,))
    return Program("box", source, 2, 0, launches=(shape,))
