/* Runs the kernels of a schedule in order, by a table that runtime/steps.py writes; checks a call,
   makes what it gives, and runs its kernels; and takes memory back. */

typedef unsigned long long word;
typedef struct object {
    word references;
    struct object *kind;
    struct object *slots[];
} PyObject;
enum { PY_EQ = 2, PY_NE = 3 };
struct cell {
    word references;
    PyObject *kind, *content;
};
extern PyObject _Py_NoneStruct, PyCell_Type, *PyExc_TypeError;
extern void PyErr_Clear(void);
extern long PyTuple_Size(PyObject *), PyDict_Size(PyObject *);
extern PyObject *PyTuple_GetItem(PyObject *, long);
extern PyObject *PyDict_GetItemWithError(PyObject *, PyObject *);
extern int PyDict_Next(PyObject *, long *, PyObject **, PyObject **);
extern PyObject *PyObject_GetAttr(PyObject *, PyObject *);
extern int PyObject_RichCompareBool(PyObject *, PyObject *, int);
extern double PyFloat_AsDouble(PyObject *);
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

/* What a value has to be: of a class; where something is known of it, that or equal to it; what it
   holds has to be what follows, of a dict the keys before the values. */
enum { TENSOR, SAME, EQUAL, REAL, LIST, TUPLE, DICT, VARIABLES };
struct demand {
    PyObject *kind, *known;
    word look, parts;
};

/* What Python reads outside of the arguments: a global by its name, what a cell of a closure holds,
   or an object. It is as demanded, or `read` gives what is `known`. */
struct watch {
    PyObject *holder, *name, *read, *known;
    const struct demand *demand;
};

/* An argument, or a tensor from outside: how it sees the cell of a source. */
struct tensor {
    PyObject *outside, *view;
    word has_gradient, source;
};

/* A whole call, as runtime/steps.py writes it. It knows its tensors and their cells; it makes its
   parts, first the addresses of blocks, each from a shelf, and then objects, each of a kind with
   words for its slots. A word is an object, nothing, or 1 and more for a tensor, cell or part. */
struct part {
    PyObject *from;
    word count;
    const word *slots;
};

/* Kernels to run by a table, or a function of Python to call with addresses: each is that of a
   memory, of a block or a constant, and what is added to it. One of scratch memory may follow. */
struct start {
    const word *table;
    PyObject *function, *workspace;
    word count;
    const word *places;
};
struct call {
    word view, gradient, cell, leaf, lifted, memory, spec, views, shared; /* numbers of slots */
    word settings, fits, calls, next;
    PyObject *changes, *tally, *mode, *is_enabled, *no_cuts, *no_views, *not_shared, *unread, *find;
    PyObject *restock, *build, *expect, *names, *variables;
    word given, tensors, sources, watches, blocks, parts, results, probes, writes, starts;
    const struct demand *demand;
    const struct watch *watch;
    const struct tensor *tensor;
    PyObject *const *specs;
    const struct part *part;
    const word *result, *write;
    const struct start *start;
};

static int is_known(const struct demand *demand, PyObject *value)
{
    if (!demand->known || value == demand->known)
        return 1;
    if (demand->look == EQUAL)
        return PyObject_RichCompareBool(value, demand->known, PY_EQ) == 1;
    if (demand->look != REAL)
        return 0;
    double found = PyFloat_AsDouble(value), known = PyFloat_AsDouble(demand->known);
    return !__builtin_memcmp(&found, &known, sizeof found);
}

static const struct demand *fit(const struct call *, const struct demand *, PyObject *,
                                PyObject ***);

static const struct demand *fit_items(const struct call *call, const struct demand *demand,
                                      PyObject *value, PyObject ***tensors)
{
    const struct demand *part = demand + 1;
    int is_list = demand->look == LIST;
    if ((is_list ? PyList_Size(value) : PyTuple_Size(value)) != (long)demand->parts)
        return 0;
    for (word i = 0; part && i < demand->parts; i++)
        part = fit(call, part, is_list ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i),
                   tensors);
    return part;
}

static const struct demand *fit_pairs(const struct call *call, const struct demand *demand,
                                      PyObject *dict, PyObject ***tensors)
{
    const struct demand *part = demand + 1;
    PyObject *key, *value;
    if (PyDict_Size(dict) * 2 != (long)demand->parts)
        return 0;
    for (int is_value = 0; is_value < 2; is_value++)
        for (long at = 0; part && PyDict_Next(dict, &at, &key, &value);)
            part = fit(call, part, is_value ? value : key, tensors);
    return part;
}

/* Gives the demand behind; or 0, perhaps with an error. */
static const struct demand *fit(const struct call *call, const struct demand *demand,
                                PyObject *value, PyObject ***tensors)
{
    if (!value || value->kind != demand->kind || !is_known(demand, value))
        return 0; /* nothing is where a list became shorter meanwhile */
    if (demand->look == TENSOR)
        *(*tensors)++ = value;
    if (demand->look < LIST)
        return demand + 1;
    if (demand->look < DICT)
        return fit_items(call, demand, value, tensors);
    if (demand->look == DICT)
        return fit_pairs(call, demand, value, tensors);
    PyObject *dict = PyObject_GetAttr(value, call->variables);
    const struct demand *end = dict ? fit_pairs(call, demand, dict, tensors) : 0;
    Py_DecRef(dict);
    return end;
}

static int fits_watch(const struct call *call, const struct watch *watch)
{
    PyObject *value = watch->holder;
    if (watch->name)
        value = PyDict_GetItemWithError(value, watch->name);
    else if (value && value->kind == &PyCell_Type)
        value = ((struct cell *)value)->content;
    if (!value)
        value = &_Py_NoneStruct;
    Py_IncRef(value);
    int fits = watch->demand && fit(call, watch->demand, value, 0);
    Py_DecRef(value);
    if (fits)
        return 1;
    PyErr_Clear();
    PyObject *now = PyObject_CallNoArgs(watch->read);
    fits = now && PyObject_RichCompareBool(now, watch->known, PY_NE) == 0;
    Py_DecRef(now);
    return fits;
}

static int are_distinct(PyObject *const *cells, word count)
{
    word size = 4;
    if (count < 2)
        return 1;
    while (size < 2 * count)
        size *= 2;
    PyObject *seen[size];
    __builtin_memset(seen, 0, sizeof seen);
    for (word i = 0; i < count; i++) {
        word at = (word)cells[i] * 0x9e3779b97f4a7c15 >> 32 & (size - 1);
        for (; seen[at]; at = (at + 1) & (size - 1))
            if (seen[at] == cells[i])
                return 0;
        seen[at] = cells[i];
    }
    return 1;
}

static int fits_arguments(const struct call *call, PyObject *const *arguments, long count,
                          PyObject *names, PyObject **tensors)
{
    const struct demand *demand = call->demand;
    word given = count + (names ? PyTuple_Size(names) : 0);
    if (given != call->given)
        return 0;
    if (names ? PyObject_RichCompareBool(names, call->names, PY_EQ) != 1
              : PyTuple_Size(call->names) > 0)
        return 0;
    for (word i = 0; demand && i < given; i++)
        demand = fit(call, demand, arguments[i], &tensors);
    return demand != 0;
}

static int has_memory(const struct call *call, PyObject *cell)
{
    return cell->slots[call->memory] != &_Py_NoneStruct;
}

/* Lets Python look where the value of a tensor lies, if it is there; gives -1 for another try. */
static int find_memory(const struct call *call, PyObject *tensor)
{
    PyObject *leaf = tensor->slots[call->cell]->slots[call->leaf];
    if (!leaf || leaf == &_Py_NoneStruct)
        return 0;
    Py_IncRef(tensor);
    PyObject *cell = PyObject_Vectorcall(call->find, &tensor, 1, 0);
    Py_DecRef(tensor);
    Py_DecRef(cell);
    return cell ? -1 : 0;
}

/* Whether the cells are as they were; then it holds the tensors, the cells and their memories. */
static int fits_tensors(const struct call *call, PyObject **tensors, PyObject **memories)
{
    PyObject **cells = tensors + call->tensors;
    __builtin_memset(cells, 0, call->sources * sizeof *cells);
    for (word i = 0; i < call->tensors; i++) {
        const struct tensor *known = call->tensor + i;
        if (known->outside)
            tensors[i] = known->outside;
        PyObject *const *slots = tensors[i]->slots, **cell = cells + known->source;
        if (slots[call->view] != known->view || (*cell && *cell != slots[call->cell])
            || (slots[call->gradient] != &_Py_NoneStruct) != (int)known->has_gradient)
            return 0;
        *cell = slots[call->cell];
        if (!has_memory(call, *cell))
            return find_memory(call, tensors[i]);
    }
    for (word i = 0; i < call->sources; i++) {
        PyObject *const *slots = cells[i]->slots;
        memories[i] = slots[call->memory];
        if (slots[call->spec] != call->specs[i] || slots[call->lifted] != call->no_cuts)
            return 0;
    }
    if (!are_distinct(cells, call->sources))
        return 0;
    for (word i = 0; i < call->writes; i++) { /* nobody else may see what is written over */
        PyObject *cell = cells[call->write[i]];
        if (cell->kind != call->unread || cell->slots[call->views] != call->no_views
            || memories[call->write[i]]->slots[call->shared] != call->not_shared)
            return 0;
    }
    for (word i = 0; i < call->tensors + call->sources; i++)
        Py_IncRef(tensors[i]);
    for (word i = 0; i < call->sources; i++)
        Py_IncRef(memories[i]);
    return 1;
}

static void let_go(PyObject *const *objects, word count)
{
    for (word i = 0; i < count; i++)
        Py_DecRef(objects[i]);
}

static int holds(const struct call *call, PyObject *const *arguments, long count, PyObject *names,
                 PyObject **made, PyObject **memories)
{
    if (call->changes->slots[call->settings] != call->tally->slots[call->fits])
        return 0;
    PyObject *is_enabled = 0;
    PyContextVar_Get(call->mode, 0, &is_enabled);
    Py_DecRef(is_enabled);
    int fits = is_enabled == call->is_enabled;
    for (word i = 0; fits && i < call->watches; i++) /* first, as it may run Python */
        fits = fits_watch(call, call->watch + i);
    fits = -fits;
    for (word i = 0; fits < 0 && i <= call->tensors; i++)
        fits = fits_arguments(call, arguments, count, names, made)
                   ? fits_tensors(call, made, memories)
                   : 0;
    if (fits < 1)
        PyErr_Clear();
    return fits > 0;
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

static int make_parts(const struct call *call, PyObject **made, word known)
{
    for (word i = call->blocks; i < call->parts; i++) {
        made[known + i] = make_part(call->part + i, made, known + i);
        if (made[known + i])
            continue;
        for (word j = i - call->blocks; j < call->blocks; j++) /* no buffer gives it back */
            put_block((const struct shelf *)call->part[j].from, made[known + j]);
        let_go(made + known, i);
        return 0;
    }
    return 1;
}

static PyObject *call_with_list(PyObject *function, PyObject *const *made, const word *numbers,
                                word count)
{
    PyObject *list = PyList_New(count);
    for (word i = 0; list && i < count; i++) {
        PyObject *object = made[numbers[i] - 1];
        Py_IncRef(object);
        PyList_SetItem(list, i, object);
    }
    PyObject *result = list ? PyObject_Vectorcall(function, &list, 1, 0) : 0;
    Py_DecRef(list);
    return result;
}

static PyObject *give(const struct call *call, PyObject *const *made)
{
    if (call->expect != &_Py_NoneStruct) {
        const word *probed = call->result + call->results;
        PyObject *nothing = call_with_list(call->expect, made, probed, call->probes);
        if (!nothing)
            return 0;
        Py_DecRef(nothing);
    }
    if (call->build != &_Py_NoneStruct)
        return call_with_list(call->build, made, call->result, call->results);
    PyObject *result = made[call->result[0] - 1];
    Py_IncRef(result);
    return result;
}

static word ask(PyObject *function) /* for a number above 0 */
{
    PyObject *number = PyObject_CallNoArgs(function);
    word found = number ? (word)PyLong_AsVoidPtr(number) : 0;
    Py_DecRef(number);
    return found;
}

static int call_with(PyObject *function, const word *addresses, word count)
{
    PyObject *numbers[count + 1];
    for (word i = 0; i < count; i++)
        numbers[i] = PyLong_FromLongLong(addresses[i]);
    PyObject *result = PyObject_Vectorcall(function, numbers, count, 0);
    let_go(numbers, count);
    Py_DecRef(result);
    return result != 0;
}

static int launch(const struct start *start, const word *addresses, word count)
{
    word bases[start->count + 2], *next = bases;
    *next++ = 0;
    for (word i = 0; i < start->count; i++) {
        word base = start->places[2 * i];
        *next++ = (base < count ? addresses[base] : base) + start->places[2 * i + 1];
    }
    if (start->workspace && !(*next++ = ask(start->workspace)))
        return 0;
    if (!start->table)
        return call_with(start->function, bases + 1, next - bases - 1);
    run(start->table, bases);
    return 1;
}

static int launch_all(const struct call *call, PyObject *const *memories, PyObject *const *blocks)
{
    word addresses[call->sources + call->blocks + 1], *next = addresses;
    for (word i = 0; i < call->sources; i++)
        *next++ = (word)PyLong_AsVoidPtr(memories[i]->slots[runner_places.address]);
    for (word i = 0; i < call->blocks; i++)
        *next++ = (word)PyLong_AsVoidPtr(blocks[i]);
    for (word i = 0; i < call->starts; i++)
        if (!launch(call->start + i, addresses, next - addresses))
            return 0;
    return 1;
}

static void count_call(PyObject **calls)
{
    PyObject *before = *calls;
    *calls = PyLong_FromLongLong(PyLong_AsLongLong(before) + 1);
    Py_DecRef(before);
}

static PyObject *hand_on(PyObject *next, PyObject *const *arguments, long count, PyObject *names)
{
    Py_IncRef(next); /* another thread may put other ways there */
    PyObject *result = PyObject_Vectorcall(next, arguments, count, names);
    Py_DecRef(next);
    return result;
}

/* Holds what a call reads and takes the blocks; 0 where it is another call, below it without. */
static int begin(const struct call *call, PyObject *const *arguments, long count, PyObject *names,
                 PyObject **made, PyObject **memories)
{
    word known = call->tensors + call->sources;
    if (!holds(call, arguments, count, names, made, memories))
        return 0;
    if (take_blocks(call, made + known))
        return 1;
    let_go(memories, call->sources);
    let_go(made, known);
    return -1;
}

static PyObject *call_step(PyObject *self, PyObject *const *arguments, long count, PyObject *names)
{
    const struct call *call = (const struct call *)PyBytes_AsString(self);
    word known = call->tensors + call->sources;
    PyObject *memories[call->sources + 1], *made[known + call->parts + 1], *result = 0;
    int begun = begin(call, arguments, count, names, made, memories);
    if (begun < 0) {
        if (!ask(call->restock))
            return 0;
        begun = begin(call, arguments, count, names, made, memories);
    }
    if (begun <= 0)
        return hand_on(call->tally->slots[call->next], arguments, count, names);
    if (make_parts(call, made, known)) {
        if (launch_all(call, memories, made + known)) {
            count_call(&call->tally->slots[call->calls]);
            result = give(call, made);
        }
        let_go(made + known, call->parts);
    }
    let_go(made, known);
    let_go(memories, call->sources);
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
