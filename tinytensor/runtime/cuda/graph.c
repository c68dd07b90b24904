/* Gives a graph's nodes their addresses and launches it, by a table of runtime/cuda/graph.py. */

typedef unsigned long long word;
typedef struct _object PyObject;
extern PyObject *PyExc_TypeError;
extern PyObject *PyErr_Occurred(void);
extern PyObject *PyLong_FromLong(long);
extern char *PyBytes_AsString(PyObject *);
extern void *PyLong_AsVoidPtr(PyObject *);
extern void PyErr_SetString(PyObject *, const char *);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *);

static int run(const word *table, const word *bases)
{
    int (*set)(word, word, word) = (int (*)(word, word, word))table[1];
    int (*launch)(word, word) = (int (*)(word, word))table[2];
    const word *at = table + 6;
    for (word blocks = table[5]; blocks; blocks--) {
        word words = at[0], nodes = at[1], moved = 0;
        at += 2;
        for (; words; words--, at += 3) {
            word *place = (word *)at[0], value = bases[at[1]] + at[2];
            moved |= *place ^ value;
            *place = value;
        }
        for (; nodes; nodes--, at += 2) {
            int status = moved ? set(table[3], at[0], at[1]) : 0;
            if (status)
                return status;
        }
    }
    void *thread = PyEval_SaveThread();
    int status = launch(table[3], table[4]);
    PyEval_RestoreThread(thread);
    return status;
}

static PyObject *runner_call(PyObject *self, PyObject *const *arguments, long count)
{
    const word *table = (const word *)PyBytes_AsString(self);
    if (!table)
        return 0;
    if (count != (long)table[0]) {
        PyErr_SetString(PyExc_TypeError, "cuda: wrong number of addresses.");
        return 0;
    }
    word bases[count + 1];
    for (long i = 0; i < count; i++)
        bases[i] = (word)PyLong_AsVoidPtr(arguments[i]);
    if (PyErr_Occurred())
        return 0;
    return PyLong_FromLong(run(table, bases));
}

struct {
    const char *name;
    void *function;
    int flags;
    const char *doc;
} runner_step = {"run", runner_call, 0x80, 0};

const int runner_is_long = 0;
