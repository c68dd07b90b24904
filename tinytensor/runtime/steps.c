/* Runs the kernels of a schedule in order, by a table that runtime/steps.py writes; checks a call,
   makes what it gives, and runs its kernels; and takes memory back. */

typedef unsigned long long word;
typedef struct object {
    word references;
    struct object *kind;
    struct object *slots[];
} PyObject;
extern PyObject _Py_NoneStruct, *PyExc_TypeError;
extern PyObject *PyErr_Occurred(void);
extern char *PyBytes_AsString(PyObject *);
extern long PyList_Size(PyObject *);
extern PyObject *PyList_New(long), *PyList_GetItem(PyObject *, long);
extern int PyList_SetItem(PyObject *, long, PyObject *), PyList_Append(PyObject *, PyObject *);
extern int PyList_SetSlice(PyObject *, long, long, PyObject *);
extern long long PyLong_AsLongLong(PyObject *);
extern PyObject *PyLong_FromLongLong(long long);
extern void *PyLong_AsVoidPtr(PyObject *);
extern PyObject *PyObject_CallNoArgs(PyObject *);
extern int PyContextVar_Get(PyObject *, PyObject *, PyObject **);
extern PyObject *PyObject_Vectorcall(PyObject *, PyObject *const *, word, PyObject *);
extern PyObject *PyType_GenericAlloc(PyObject *, long);
extern void PyErr_SetString(PyObject *, const char *);
extern void Py_IncRef(PyObject *), Py_DecRef(PyObject *); /* do nothing with 0 */
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *);

static void run_steps(const word *table, const word *bases)
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

static void run(const word *table, const word *bases)
{
    void *thread = table[1] ? PyEval_SaveThread() : 0;
    run_steps(table, bases);
    if (thread)
        PyEval_RestoreThread(thread);
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
    run(table, bases);
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
}

/* Blocks of one size, as runtime/buffer.py keeps them. */
struct shelf {
    PyObject *blocks, *use;
    long long block_bytes;
};

struct {
    word shelf, address;
} runner_places; /* the numbers of the slots in which a buffer keeps them */

static void count_bytes(PyObject *use, long long bytes)
{
    long long held = PyLong_AsLongLong(PyList_GetItem(use, 0)) + bytes;
    PyList_SetItem(use, 0, PyLong_FromLongLong(held));
    if (bytes > 0 && held > PyLong_AsLongLong(PyList_GetItem(use, 1)))
        PyList_SetItem(use, 1, PyLong_FromLongLong(held));
}

static PyObject *take_block(const struct shelf *shelf)
{
    long last = PyList_Size(shelf->blocks) - 1;
    if (last < 0)
        return 0;
    PyObject *address = PyList_GetItem(shelf->blocks, last);
    Py_IncRef(address);
    PyList_SetSlice(shelf->blocks, last, last + 1, 0);
    count_bytes(shelf->use, shelf->block_bytes);
    return address;
}

static void put_block(const struct shelf *shelf, PyObject *address)
{
    count_bytes(shelf->use, -shelf->block_bytes);
    PyList_Append(shelf->blocks, address);
}

static PyObject *release_block(PyObject *buffer, PyObject *nothing)
{
    PyObject *shelf = buffer->slots[runner_places.shelf];
    PyObject *address = buffer->slots[runner_places.address];
    if (shelf && address)
        put_block((const struct shelf *)PyBytes_AsString(shelf), address);
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
}

/* A whole call, as runtime/steps.py writes it. Its parts are first the addresses of blocks, each
   from a shelf, and then objects, each of a kind with words for its slots: an object, nothing, or
   1 and more for an earlier part. The last parts are the results. */
struct source {
    PyObject *kind, *spec;
};
struct part {
    PyObject *from;
    word count;
    const word *slots;
};
struct call {
    const word *table;
    word view, cell, memory, spec, settings, fits, calls, next; /* numbers of slots */
    PyObject *changes, *tally, *mode, *is_enabled, *workspace, *restock, *build;
    word sources, blocks, parts, results;
    const struct source *source;
    const struct part *part;
    const word *order;
};

static int holds(const struct call *call, PyObject *const *arguments, PyObject **memories)
{
    for (word i = 0; i < call->sources; i++) {
        const struct source *source = call->source + i;
        PyObject *tensor = arguments[i];
        if (tensor->kind != source->kind || tensor->slots[call->view] != &_Py_NoneStruct)
            return 0;
        PyObject *cell = tensor->slots[call->cell];
        memories[i] = cell->slots[call->memory];
        if (memories[i] == &_Py_NoneStruct || cell->slots[call->spec] != source->spec)
            return 0;
        for (word j = 0; j < i; j++)
            if (cell == arguments[j]->slots[call->cell])
                return 0;
    }
    if (call->changes->slots[call->settings] != call->tally->slots[call->fits])
        return 0;
    PyObject *is_enabled = 0;
    PyContextVar_Get(call->mode, 0, &is_enabled);
    Py_DecRef(is_enabled);
    return is_enabled == call->is_enabled;
}

static int take_blocks(const struct call *call, PyObject **made)
{
    for (word i = 0; i < call->blocks; i++) {
        made[i] = take_block((const struct shelf *)call->part[i].from);
        if (made[i])
            continue;
        while (i--) {
            put_block((const struct shelf *)call->part[i].from, made[i]);
            Py_DecRef(made[i]);
        }
        return 0;
    }
    return 1;
}

static PyObject *make_part(const struct part *part, PyObject *const *made, word earlier)
{
    PyObject *object = PyType_GenericAlloc(part->from, 0);
    for (word i = 0; object && i < part->count; i++) {
        word value = part->slots[i];
        object->slots[i] = value && value <= earlier ? made[value - 1] : (PyObject *)value;
        Py_IncRef(object->slots[i]);
    }
    return object;
}

static int make_parts(const struct call *call, PyObject **made)
{
    for (word i = call->blocks; i < call->parts; i++) {
        made[i] = make_part(call->part + i, made, i);
        if (made[i])
            continue;
        for (word j = i - call->blocks; j < call->blocks; j++) /* no buffer gives it back */
            put_block((const struct shelf *)call->part[j].from, made[j]);
        while (i--)
            Py_DecRef(made[i]);
        return 0;
    }
    return 1;
}

static PyObject *give(const struct call *call, PyObject **results)
{
    if (call->build == &_Py_NoneStruct) {
        Py_IncRef(*results);
        return *results;
    }
    PyObject *list = PyList_New(call->results);
    for (word i = 0; list && i < call->results; i++) {
        Py_IncRef(results[i]);
        PyList_SetItem(list, i, results[i]);
    }
    PyObject *built = list ? PyObject_Vectorcall(call->build, &list, 1, 0) : 0;
    Py_DecRef(list);
    return built;
}

static void launch(const struct call *call, PyObject *const *memories, PyObject *const *made,
                   word scratch)
{
    word addresses[call->sources + call->blocks + 1], bases[call->table[0]];
    word *next = addresses;
    for (word i = 0; i < call->sources; i++)
        *next++ = (word)PyLong_AsVoidPtr(memories[i]->slots[runner_places.address]);
    for (word i = 0; i < call->blocks; i++)
        *next++ = (word)PyLong_AsVoidPtr(made[i]);
    *next = scratch;
    bases[0] = 0;
    for (word i = 1; i < call->table[0]; i++)
        bases[i] = addresses[call->order[i - 1]];
    run(call->table, bases);
}

static word ask(PyObject *function) /* for a number above 0 */
{
    PyObject *number = PyObject_CallNoArgs(function);
    word found = number ? (word)PyLong_AsVoidPtr(number) : 0;
    Py_DecRef(number);
    return found;
}

static void count_call(PyObject **calls)
{
    PyObject *before = *calls;
    *calls = PyLong_FromLongLong(PyLong_AsLongLong(before) + 1);
    Py_DecRef(before);
}

static PyObject *call_step(PyObject *self, PyObject *const *arguments, long count, PyObject *names)
{
    const struct call *call = (const struct call *)PyBytes_AsString(self);
    PyObject *memories[call->sources + 1], *made[call->parts];
    word scratch = 0;
    int fits = !names && count == (long)call->sources && holds(call, arguments, memories);
    if (fits && call->workspace != &_Py_NoneStruct && !(scratch = ask(call->workspace)))
        return 0;
    if (fits && !take_blocks(call, made)) {
        if (!ask(call->restock))
            return 0;
        fits = holds(call, arguments, memories) && take_blocks(call, made);
    }
    if (!fits)
        return PyObject_Vectorcall(call->tally->slots[call->next], arguments, count, names);
    for (word i = 0; i < call->sources; i++)
        Py_IncRef(memories[i]); /* others may drop them while the kernels run */
    PyObject *result = 0;
    if (make_parts(call, made)) {
        launch(call, memories, made, scratch);
        count_call(&call->tally->slots[call->calls]);
        result = give(call, made + call->parts - call->results);
        for (word i = 0; i < call->parts; i++)
            Py_DecRef(made[i]);
    }
    for (word i = 0; i < call->sources; i++)
        Py_DecRef(memories[i]);
    return result;
}

struct {
    const char *name;
    void *function;
    int flags;
    const char *doc;
} runner_step = {"run", runner_call, 0x80, 0}, runner_whole = {"call", call_step, 0x82, 0},
  runner_release = {"__del__", release_block, 0x4, 0};

const int runner_is_long = 0;
