"""Programs written by hand, as codegen would emit them, for the tests of the runtime."""

import numpy as np

from tinytensor.ops.program import Program

ELEMENTS = 64

SOURCE = """
void {name}_step(void **address) {{ {body} }}
const int {name}_is_long = 0;
"""


def make_program(body, params=2, workspace_bytes=0, libraries=(), name="probe"):
    source = SOURCE.format(name=name, body=body)
    return Program(name, source, params, workspace_bytes, libraries)


def add_program(number):
    """Fill float buffer 0 with buffer 1 plus a number."""
    body = f"""
      float *out = address[0];
      const float *x = address[1];
      for (int i = 0; i < {ELEMENTS}; i++) out[i] = x[i] + {number}.0f;
    """
    return make_program(body)


def run_add(device, executable):
    """Run an `add_program` on 0, 1, 2, ... and return what it wrote."""
    out = device.allocate(4 * ELEMENTS)
    x = device.allocate(4 * ELEMENTS)
    result = np.zeros(ELEMENTS, np.float32)
    device.copy_in(x, np.arange(ELEMENTS, dtype=np.float32))
    device.run(executable, [out, x])
    device.copy_out(out, result)
    return result
