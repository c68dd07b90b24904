/* Runs the kernels of a schedule in order, by a table that runtime/steps.py writes. */

typedef unsigned long long word;
typedef struct _object PyObject;
extern PyObject _Py_NoneStruct, *PyExc_TypeError;
extern PyObject *PyErr_Occurred(void);
extern char *PyBytes_AsString(PyObject *);
extern void *PyLong_AsVoidPtr(PyObject *);
extern void PyErr_SetString(PyObject *, const char *);
extern void Py_IncRef(PyObject *);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *);

static void run(const word *table, const word *bases)
{
    word given[table[2]];
    const word *at = table + 4;
    for (word steps = table[3]; steps; steps--) {
        void (*step)(const word *) = (void (*)(const word *))at[0];
        word count = at[1];
        at += 2;
        for (word i = 0; i < count; i++, at += 2)
            given[i] = bases[at[0]] + at[1];
        step(given);
    }
}

static PyObject *runner_call(PyObject *self, PyObject *const *arguments, long count)
{
    const word *table = (const word *)PyBytes_AsString(self);
    if (!table)
        return 0;
    if (count + 1 != (long)table[0]) {
        PyErr_SetString(PyExc_TypeError, "cpu: wrong number of addresses.");
        return 0;
    }
    word bases[count + 1];
    bases[0] = 0;
    for (long i = 0; i < count; i++)
        bases[i + 1] = (word)PyLong_AsVoidPtr(arguments[i]);
    if (PyErr_Occurred())
        return 0;
    void *thread = table[1] ? PyEval_SaveThread() : 0;
    run(table, bases);
    if (thread)
        PyEval_RestoreThread(thread);
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
}

struct {
    const char *name;
    void *function;
    int flags;
    const char *doc;
} runner_step = {"run", runner_call, 0x80, 0};

const int runner_is_long = 0;
