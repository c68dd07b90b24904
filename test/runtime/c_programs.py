"""Programs written by hand, as codegen would emit them, for the tests of the runtime."""

import numpy as np

from tinytensor.ops.program import Program

ELEMENTS = 64

GLUE = """
typedef struct _object PyObject;
extern void *PyLong_AsVoidPtr(PyObject *);
extern PyObject *PyErr_Occurred(void);
extern void PyErr_SetString(PyObject *, const char *);
extern PyObject *PyExc_TypeError;
extern PyObject _Py_NoneStruct;
extern void Py_IncRef(PyObject *);
static PyObject *call(PyObject *self, PyObject *const *args, long count) {
  void *address[COUNT];
  if (count != COUNT) { PyErr_SetString(PyExc_TypeError, "wrong count"); return 0; }
  for (int i = 0; i < COUNT; i++) {
    address[i] = PyLong_AsVoidPtr(args[i]);
    if (!address[i] && PyErr_Occurred()) return 0;
  }
  kernel(address);
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}
struct { const char *name; void *function; int flags; const char *doc; } NAME_method = {
  "NAME", call, 0x80, 0
};
"""


def make_program(body, params=2, workspace_bytes=0, libraries=(), name="probe"):
    count = params + (workspace_bytes > 0)
    glue = GLUE.replace("COUNT", str(count)).replace("NAME", name)
    source = f"static void kernel(void **address) {{ {body} }}\n{glue}"
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
