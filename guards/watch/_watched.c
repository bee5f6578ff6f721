/* Whether what a loaded graph was built on is still there: asked before every call.

   A Watch holds dictionaries (attributes of modules and objects, globals, members of classes) with the keys that matter
   and the very objects found there; lists, sets and closure cells with their items; and tensors with where their memory
   is. `holds()` compares. A dictionary is first told by whether it was written at all: CPython up to 3.11 numbers the
   writes of every dictionary, from 3.12 on a watcher tells the writes of the watched ones. Only where one was written
   are its keys looked up again, so that a write to another key costs a lookup and no more. Of a class with very many
   keys that matter a copy of its dictionary is kept in place of them. The bases of a class are told by its `__mro__`, a
   function by its code and its defaults.

   Where a tensor keeps its memory is found and tried by `guards/watch/tensor_layout.py`. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef Py_GIL_DISABLED
#error "a Watch reads dictionaries without a lock: it needs the GIL"
#endif

#define HAS_WATCHERS (PY_VERSION_HEX >= 0x030C0000)
#define MAX_INLINE 5 /* dims that an implementation holds itself (torch 2.13 c10/core/impl/SizesAndStrides.h) */

typedef struct {
    Py_ssize_t first, count; /* its keys; count ANY: any write counts; NAMED: the keys in a set, see named_keys_hold */
} Keys;

#define ANY (-1)
#define NAMED (-2)

typedef struct {
    PyObject_HEAD
    Py_ssize_t dict_count, key_count, list_count, set_count, cell_count, slot_count, tensor_count;
    Py_ssize_t class_count, function_count, question_count;
    PyObject **dicts;
    Keys *dict_keys;
    PyObject **keys, **values; /* a value of NULL: the key is absent; NAMED: one set of keys, one copy of the dictionary */
    PyObject **classes, **mros;
    PyObject **functions, **parts;   /* parts: PARTS of each, or NULL */
    PyObject **questions, **answers; /* callables without arguments */
    PyObject **lists, **items; /* items: tuples */
    PyObject **sets, **members; /* sets, queues and dictionaries with an order of their own, and tuples of what is in them */
    PyObject **cells, **contents;
    PyObject **slotted, **slots; /* slots: tuples of descriptor and value */
    PyObject **tensors;
    uint64_t *places, *forms; /* see read_words; forms: of tensors of more than two dims, or NULL */
#if HAS_WATCHERS
    uint64_t epoch;
#else
    uint64_t *versions;
#endif
} Watch;

/* ---- writes of dictionaries -------------------------------------------------------------------------------------- */

#if HAS_WATCHERS
#define REMEMBERED 64
static int watcher = -1;
static uint64_t epoch = 0;                /* number of writes to watched dictionaries so far */
static PyObject *written_dicts[REMEMBERED]; /* addresses only, of the last ones */

static int written(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value) {
    written_dicts[epoch++ % REMEMBERED] = dict;
    return 0;
}
#else
static inline uint64_t version_of(PyObject *dict) { return ((PyDictObject *)dict)->ma_version_tag; }
#endif

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Whether two values are the same to any trace: one object, or equal ones of a plain immutable type. */
static int same_value(PyObject *one, PyObject *other) {
    if (one == other) return 1;
    if (one == NULL || other == NULL || Py_TYPE(one) != Py_TYPE(other)) return 0;
    if (PyFloat_CheckExact(one)) {
        double a = PyFloat_AS_DOUBLE(one), b = PyFloat_AS_DOUBLE(other);
        return memcmp(&a, &b, sizeof a) == 0;
    }
    if (PyLong_CheckExact(one) || PyUnicode_CheckExact(one) || PyBytes_CheckExact(one))
        return PyObject_RichCompareBool(one, other, Py_EQ);
    if (PyTuple_CheckExact(one)) {
        Py_ssize_t count = PyTuple_GET_SIZE(one);
        if (count != PyTuple_GET_SIZE(other)) return 0;
        if (Py_EnterRecursiveCall(" in a comparison of tuples")) return -1;
        int same = 1;
        for (Py_ssize_t i = 0; same > 0 && i < count; i++)
            same = same_value(PyTuple_GET_ITEM(one, i), PyTuple_GET_ITEM(other, i));
        Py_LeaveRecursiveCall();
        return same;
    }
    return 0;
}

/* Whether all keys in a set lead to what they led to in a copy of the dictionary. */
static int named_keys_hold(PyObject *dict, PyObject *names, PyObject *before) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    int same = 1;
    dict = PyDict_Copy(dict); /* a comparison may run code, which may write */
    if (dict == NULL) return -1;
    while (same > 0 && PyDict_Next(dict, &position, &key, &value)) {
        PyObject *was = PyDict_GetItemWithError(before, key);
        if (was == value) continue;
        int matters = was == NULL && PyErr_Occurred() ? -1 : PySet_Contains(names, key);
        if (matters != 0) same = matters < 0 ? -1 : same_value(value, was);
    }
    position = 0;
    while (same > 0 && PyDict_Next(before, &position, &key, &value)) {
        int is_there = PyDict_Contains(dict, key);
        int matters = is_there != 0 ? is_there < 0 ? -1 : 0 : PySet_Contains(names, key);
        if (matters != 0) same = matters < 0 ? -1 : 0;
    }
    Py_DECREF(dict);
    return same;
}

/* Whether the keys of a dictionary lead to what they led to; an equal plain value is taken for the old one. */
static int keys_hold(Watch *self, Py_ssize_t index) {
    Keys range = self->dict_keys[index];
    if (range.count == NAMED)
        return named_keys_hold(self->dicts[index], self->keys[range.first], self->values[range.first]);
    if (range.count < 0) return 0;
    for (Py_ssize_t i = range.first; i < range.first + range.count; i++) {
        PyObject *found = PyDict_GetItemWithError(self->dicts[index], self->keys[i]);
        if (found == NULL && PyErr_Occurred()) return -1;
        if (found == self->values[i]) continue;
        Py_XINCREF(found);
        int same = same_value(found, self->values[i]);
        if (same <= 0) {
            Py_XDECREF(found);
            return same;
        }
        Py_XSETREF(self->values[i], found);
    }
    return 1;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Offsets in bytes. A tensor of more dims than fit has a pointer to its sizes and strides where the sizes would stand. */
static struct {
    PyTypeObject *tensor;                        /* NULL: not known */
    Py_ssize_t implementation;                   /* in the Python object */
    Py_ssize_t storage, rank, sizes, strides, offset; /* in the implementation; two words follow the offset */
    Py_ssize_t data;                             /* in the storage */
} layout;

static inline uint64_t word_at(uintptr_t address, Py_ssize_t offset) { return *(const uint64_t *)(address + offset); }

static inline const uint64_t *sizes_of(uintptr_t implementation, uint64_t rank) {
    uintptr_t inside = implementation + layout.sizes;
    return (const uint64_t *)(rank <= MAX_INLINE ? inside : *(const uintptr_t *)inside);
}

static inline const uint64_t *strides_of(uintptr_t implementation, uint64_t rank) {
    return rank <= MAX_INLINE ? (const uint64_t *)(implementation + layout.strides)
                              : sizes_of(implementation, rank) + rank;
}

/* What is noted of a tensor: FIXED words, and for more than two dims its sizes and strides. The size of a matrix' second
   dim follows from the number of elements. Most weights have one or two dims: these words are read without a branch. */
#define FIXED 10
#define RANK 3

#define LONGEST 256 /* no offset is larger (set_tensor_layout) */

static const uint64_t nothing[LONGEST / 8 + 4]; /* read in place of what is not there */

static inline uintptr_t there(uintptr_t address) { return address != 0 ? address : (uintptr_t)nothing; }

static inline void read_words(PyObject *tensor, uint64_t words[FIXED]) {
    uintptr_t implementation = there(word_at((uintptr_t)tensor, layout.implementation));
    uintptr_t storage = word_at(implementation, layout.storage);
    const uint64_t *strides = (const uint64_t *)(implementation + layout.strides);
    const uint64_t *tail = (const uint64_t *)(implementation + layout.offset);
    words[0] = implementation;
    words[1] = storage;
    words[2] = word_at(there(storage), layout.data);
    words[RANK] = word_at(implementation, layout.rank);
    words[4] = word_at(implementation, layout.sizes);
    words[5] = strides[0];
    words[6] = strides[1];
    words[7] = tail[0]; /* storage offset */
    words[8] = tail[1]; /* number of elements */
    words[9] = tail[2]; /* dtype, device and flags */
}

/* Two words that stand beside each other, read at once. */
typedef uint64_t Pair __attribute__((vector_size(16), aligned(8), may_alias));

static inline Pair pair_at(uintptr_t address, Py_ssize_t offset) { return *(const Pair *)(address + offset); }

/* What differs from what `read_words` noted; this is where the time of most calls goes. */
static inline uint64_t differing_words(PyObject *tensor, const uint64_t *place) {
    uintptr_t implementation = there(word_at((uintptr_t)tensor, layout.implementation));
    uintptr_t storage = word_at(implementation, layout.storage), noted = (uintptr_t)place;
    Pair differing = (pair_at(implementation, layout.rank) ^ pair_at(noted, 8 * RANK)) |
                     (pair_at(implementation, layout.strides) ^ pair_at(noted, 8 * 5)) |
                     (pair_at(implementation, layout.offset) ^ pair_at(noted, 8 * 7));
    uint64_t others = (implementation ^ place[0]) | (storage ^ place[1]) |
                      (word_at(there(storage), layout.data) ^ place[2]) |
                      (word_at(implementation, layout.offset + 16) ^ place[9]);
    return others | differing[0] | differing[1];
}

static void note_form(PyObject *tensor, uint64_t rank, uint64_t *form) {
    uintptr_t implementation = word_at((uintptr_t)tensor, layout.implementation);
    memcpy(form, sizes_of(implementation, rank), rank * sizeof(uint64_t));
    memcpy(form + rank, strides_of(implementation, rank), rank * sizeof(uint64_t));
}

static int form_holds(PyObject *tensor, uint64_t rank, const uint64_t *form) {
    uintptr_t implementation = word_at((uintptr_t)tensor, layout.implementation);
    return memcmp(form, sizes_of(implementation, rank), rank * sizeof(uint64_t)) == 0 &&
           memcmp(form + rank, strides_of(implementation, rank), rank * sizeof(uint64_t)) == 0;
}

/* Return the number of the first tensor that is another, in another place, or of another form; -1 for none. */
static Py_ssize_t changed_tensor(Watch *self) {
    uint64_t differing = 0;
    for (Py_ssize_t i = 0; i < self->tensor_count; i++)
        differing |= differing_words(self->tensors[i], self->places + FIXED * i);
    if (differing == 0 && self->forms == NULL) return -1;
    const uint64_t *form = self->forms;
    for (Py_ssize_t i = 0; i < self->tensor_count; i++) {
        const uint64_t *place = self->places + FIXED * i;
        if (differing_words(self->tensors[i], place) != 0) return i;
        if (place[RANK] <= 2) continue;
        if (!form_holds(self->tensors[i], place[RANK], form)) return i;
        form += 2 * place[RANK];
    }
    return -1;
}

/* ---- the question ------------------------------------------------------------------------------------------------ */

/* Return the number of the first dictionary that no longer holds, -1 for none, -2 with an error set. */
static Py_ssize_t changed_dict(Watch *self) {
#if HAS_WATCHERS
    while (self->epoch != epoch) {
        uint64_t now = epoch, count = now - self->epoch;
        for (Py_ssize_t i = 0; i < self->dict_count; i++) {
            int is_written = count > REMEMBERED;
            for (uint64_t back = 1; !is_written && back <= count; back++)
                is_written = written_dicts[(now - back) % REMEMBERED] == self->dicts[i];
            if (!is_written) continue;
            int holds = keys_hold(self, i);
            if (holds <= 0) return holds < 0 ? -2 : i;
        }
        self->epoch = now;
    }
#else
    uint64_t differing = 0;
    for (Py_ssize_t i = 0; i < self->dict_count; i++) differing |= version_of(self->dicts[i]) ^ self->versions[i];
    if (differing == 0) return -1;
    for (Py_ssize_t i = 0; i < self->dict_count; i++) {
        uint64_t version = version_of(self->dicts[i]);
        if (version == self->versions[i]) continue;
        int holds = keys_hold(self, i);
        if (holds <= 0) return holds < 0 ? -2 : i;
        self->versions[i] = version;
    }
#endif
    return -1;
}

static int list_holds(PyObject *list, PyObject *items) {
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    if (PyList_GET_SIZE(list) != count) return 0;
    if (count == 0) return 1; /* such a list has no memory */
    if (memcmp(((PyListObject *)list)->ob_item, ((PyTupleObject *)items)->ob_item, count * sizeof(PyObject *)) == 0)
        return 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i >= PyList_GET_SIZE(list)) return 0;
        PyObject *item = Py_NewRef(PyList_GET_ITEM(list, i));
        int same = same_value(item, PyTuple_GET_ITEM(items, i));
        Py_DECREF(item);
        if (same <= 0) return same;
    }
    return 1;
}

#define PARTS 3

static void parts_of(PyObject *function, PyObject *found[PARTS]) {
    PyFunctionObject *held = (PyFunctionObject *)function;
    found[0] = held->func_code;
    found[1] = held->func_defaults;
    found[2] = held->func_kwdefaults;
}

/* Return the number of the first function that has another code or other defaults, -1 for none. */
static Py_ssize_t changed_function(Watch *self) {
    for (Py_ssize_t i = 0; i < self->function_count; i++) {
        PyFunctionObject *held = (PyFunctionObject *)self->functions[i];
        PyObject **noted = self->parts + PARTS * i;
        if ((held->func_code != noted[0]) | (held->func_defaults != noted[1]) | (held->func_kwdefaults != noted[2]))
            return i;
    }
    return -1;
}

/* Return the number of the first class that has other bases, -1 for none. */
static Py_ssize_t changed_class(Watch *self) {
    for (Py_ssize_t i = 0; i < self->class_count; i++)
        if (((PyTypeObject *)self->classes[i])->tp_mro != self->mros[i]) return i;
    return -1;
}

static int answer_holds(PyObject *question, PyObject *answer) {
    PyObject *found = PyObject_CallNoArgs(question);
    if (found == NULL) return -1;
    int same = same_value(found, answer);
    Py_DECREF(found);
    return same;
}

/* Whether going through a container gives the same items in the same order. */
static int items_hold(PyObject *container, PyObject *items) {
    PyObject *found = PySequence_Tuple(container);
    if (found == NULL) return -1;
    int same = same_value(found, items);
    Py_DECREF(found);
    return same;
}

/* Ask the descriptor of a slot itself: no code of a class runs. A slot that was not set is noted as its descriptor. */
static int slot_holds(PyObject *object, PyObject *slot) {
    PyObject *descriptor = PyTuple_GET_ITEM(slot, 0);
    PyObject *found = Py_TYPE(descriptor)->tp_descr_get(descriptor, object, (PyObject *)Py_TYPE(object));
    if (found == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
        PyErr_Clear();
        return PyTuple_GET_ITEM(slot, 1) == descriptor;
    }
    int same = same_value(found, PyTuple_GET_ITEM(slot, 1));
    Py_DECREF(found);
    return same;
}

/* Return what no longer holds as (kind, number), NULL for nothing; `number` is -2 with an error set. */
static const char *changed_thing(Watch *self, Py_ssize_t *number) {
    if ((*number = changed_dict(self)) != -1) return "dictionary";
    if ((*number = changed_tensor(self)) != -1) return "tensor";
    if ((*number = changed_class(self)) != -1) return "class";
    if ((*number = changed_function(self)) != -1) return "function";
    for (Py_ssize_t i = 0; i < self->list_count; i++) {
        int holds = list_holds(self->lists[i], self->items[i]);
        if (holds <= 0) {
            *number = holds < 0 ? -2 : i;
            return "list";
        }
    }
    for (Py_ssize_t i = 0; i < self->cell_count; i++) {
        PyObject *content = PyCell_GET(self->cells[i]);
        int same = content == self->contents[i] ? 1 : same_value(content, self->contents[i]);
        if (same <= 0) {
            *number = same < 0 ? -2 : i;
            return "cell";
        }
    }
    for (Py_ssize_t i = 0; i < self->slot_count; i++) {
        int same = slot_holds(self->slotted[i], self->slots[i]);
        if (same <= 0) {
            *number = same < 0 ? -2 : i;
            return "slot";
        }
    }
    for (Py_ssize_t i = 0; i < self->set_count; i++) {
        int same = items_hold(self->sets[i], self->members[i]);
        if (same <= 0) {
            *number = same < 0 ? -2 : i;
            return "collection";
        }
    }
    for (Py_ssize_t i = 0; i < self->question_count; i++) {
        int same = answer_holds(self->questions[i], self->answers[i]);
        if (same <= 0) {
            *number = same < 0 ? -2 : i;
            return "question";
        }
    }
    return NULL;
}

/* A comparison that fails is a change; an interrupt, or the end of the program, is none. */
static int forgive(void) {
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyErr_Clear();
    return 0;
}

static PyObject *watch_holds(Watch *self, PyObject *Py_UNUSED(ignored)) {
    Py_ssize_t number;
    const char *kind = changed_thing(self, &number);
    if (kind == NULL) Py_RETURN_TRUE;
    if (number == -2 && forgive() < 0) return NULL;
    Py_RETURN_FALSE;
}

static PyObject *watch_changed(Watch *self, PyObject *Py_UNUSED(ignored)) {
    Py_ssize_t number;
    const char *kind = changed_thing(self, &number);
    if (kind == NULL) Py_RETURN_NONE;
    if (number == -2) {
        if (forgive() < 0) return NULL;
        number = -1;
    }
    return Py_BuildValue("(sn)", kind, number);
}

/* ---- making one -------------------------------------------------------------------------------------------------- */

static PyObject **objects(Py_ssize_t count) {
    PyObject **made = PyMem_Calloc(count ? count : 1, sizeof(PyObject *));
    if (made == NULL) PyErr_NoMemory();
    return made;
}

/* Take a tuple of pairs (which no code that runs meanwhile can change) apart into two arrays; the first of each must pass a test. */
static int take_pairs(
    PyObject *pairs, PyObject ***firsts, PyObject ***seconds, Py_ssize_t *count, int (*is_right)(PyObject *), PyTypeObject *second
) {
    Py_ssize_t length = PyTuple_GET_SIZE(pairs);
    if ((*firsts = objects(length)) == NULL || (*seconds = objects(length)) == NULL) return -1;
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *pair = PyTuple_GET_ITEM(pairs, i);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2 || !is_right(PyTuple_GET_ITEM(pair, 0)) ||
            (second != NULL && !Py_IS_TYPE(PyTuple_GET_ITEM(pair, 1), second))) {
            PyErr_SetString(PyExc_TypeError, "a Watch takes pairs of a container and what is in it");
            return -1;
        }
        (*firsts)[i] = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
        (*seconds)[i] = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
        *count = i + 1;
    }
    return 0;
}

static int is_list(PyObject *value) { return PyList_Check(value); }
static int is_any(PyObject *value) { return 1; }
static int is_cell(PyObject *value) { return PyCell_Check(value); }
static int is_callable(PyObject *value) { return PyCallable_Check(value); }

/* Whether the slots are pairs of a descriptor that reads a slot, and a value. */
static int are_slots(Watch *self) {
    for (Py_ssize_t i = 0; i < self->slot_count; i++) {
        PyObject *slot = self->slots[i];
        if (PyTuple_GET_SIZE(slot) == 2 && Py_IS_TYPE(PyTuple_GET_ITEM(slot, 0), &PyMemberDescr_Type)) continue;
        PyErr_SetString(PyExc_TypeError, "a Watch takes slots as pairs of a descriptor and a value");
        return 0;
    }
    return 1;
}

#if PY_VERSION_HEX >= 0x030D0000
/* From 3.13 on the values of an object's dictionary may lie in the object itself, where CPython 3.13.0 tells no watcher
   of a write. A key that is no text makes the dictionary keep its values on its own. */
static int leave_object(PyObject *dict) {
    PyObject *key = (PyObject *)Py_TYPE(dict); /* a key that no attribute can have */
    int is_there = PyDict_Contains(dict, key);
    if (is_there != 0) return is_there < 0 ? -1 : 0;
    return PyDict_SetItem(dict, key, Py_None) < 0 || PyDict_DelItem(dict, key) < 0 ? -1 : 0;
}
#endif

static int take_classes(Watch *self, PyObject *given) {
    Py_ssize_t length = PyTuple_GET_SIZE(given);
    if ((self->classes = objects(length)) == NULL || (self->mros = objects(length)) == NULL) return -1;
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *cls = PyTuple_GET_ITEM(given, i);
        if (!PyType_Check(cls)) {
            PyErr_SetString(PyExc_TypeError, "a Watch takes classes");
            return -1;
        }
        self->classes[i] = Py_NewRef(cls);
        self->mros[i] = Py_XNewRef(((PyTypeObject *)cls)->tp_mro);
        self->class_count = i + 1;
    }
    return 0;
}

static int take_functions(Watch *self, PyObject *given) {
    Py_ssize_t length = PyTuple_GET_SIZE(given);
    if ((self->functions = objects(length)) == NULL || (self->parts = objects(PARTS * length)) == NULL) return -1;
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *function = PyTuple_GET_ITEM(given, i);
        if (!PyFunction_Check(function)) {
            PyErr_SetString(PyExc_TypeError, "a Watch takes functions");
            return -1;
        }
        self->functions[i] = Py_NewRef(function);
        parts_of(function, self->parts + PARTS * i);
        for (int part = 0; part < PARTS; part++) Py_XINCREF(self->parts[PARTS * i + part]);
        self->function_count = i + 1;
    }
    return 0;
}

/* Take the dictionaries: (dictionary or class, keys or None). What the keys lead to now is what is expected. */
static int take_dicts(Watch *self, PyObject *given) {
    Py_ssize_t length = PyTuple_GET_SIZE(given), keys = 0;
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *pair = PyTuple_GET_ITEM(given, i);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) goto wrong;
        PyObject *first = PyTuple_GET_ITEM(pair, 0), *second = PyTuple_GET_ITEM(pair, 1);
        if (!PyDict_Check(first) && !PyType_Check(first)) goto wrong;
        if (second != Py_None && !PyTuple_CheckExact(second) && !PyFrozenSet_CheckExact(second)) goto wrong;
        if (second != Py_None) keys += PyTuple_CheckExact(second) ? PyTuple_GET_SIZE(second) : 1;
    }
    self->dicts = objects(length);
    self->dict_keys = PyMem_Calloc(length ? length : 1, sizeof(Keys));
    self->keys = objects(keys);
    self->values = objects(keys);
    if (self->dicts == NULL || self->dict_keys == NULL || self->keys == NULL || self->values == NULL) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *pair = PyTuple_GET_ITEM(given, i);
        PyObject *dict = PyTuple_GET_ITEM(pair, 0), *names = PyTuple_GET_ITEM(pair, 1);
        if (PyType_Check(dict)) {
#if HAS_WATCHERS
            dict = PyType_GetDict((PyTypeObject *)dict);
#else
            dict = Py_XNewRef(((PyTypeObject *)dict)->tp_dict);
#endif
            if (dict == NULL) goto wrong;
        } else {
#if PY_VERSION_HEX >= 0x030D0000
            if (leave_object(dict) < 0) return -1;
#endif
            Py_INCREF(dict);
        }
        self->dicts[i] = dict;
        self->dict_count = i + 1;
        self->dict_keys[i] = (Keys){self->key_count, ANY};
        if (names == Py_None) continue;
        if (PyFrozenSet_CheckExact(names)) {
            PyObject *copy = PyDict_Copy(dict);
            if (copy == NULL) return -1;
            self->keys[self->key_count] = Py_NewRef(names);
            self->values[self->key_count++] = copy;
            self->dict_keys[i].count = NAMED;
            continue;
        }
        self->dict_keys[i].count = PyTuple_GET_SIZE(names);
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(names); k++) {
            PyObject *name = PyTuple_GET_ITEM(names, k);
            /* Keys whose comparison runs no code of a user's. */
            if (!PyUnicode_CheckExact(name) && !PyLong_CheckExact(name) && !PyBytes_CheckExact(name)) goto wrong;
            PyObject *found = PyDict_GetItemWithError(dict, name);
            if (found == NULL && PyErr_Occurred()) return -1;
            self->keys[self->key_count] = Py_NewRef(name);
            self->values[self->key_count++] = Py_XNewRef(found);
        }
    }
    return 0;
wrong:
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "a Watch takes pairs of a dictionary or class and a tuple or set of keys, or None");
    return -1;
}

static int note_writes(Watch *self) {
#if HAS_WATCHERS
    self->epoch = epoch;
    for (Py_ssize_t i = 0; i < self->dict_count; i++)
        if (PyDict_Watch(watcher, self->dicts[i]) < 0) return -1;
#else
    self->versions = PyMem_Calloc(self->dict_count ? self->dict_count : 1, sizeof(uint64_t));
    if (self->versions == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->dict_count; i++) self->versions[i] = version_of(self->dicts[i]);
#endif
    return 0;
}

static int take_tensors(Watch *self, PyObject *given) {
    Py_ssize_t length = PyTuple_GET_SIZE(given);
    if (length > 0 && layout.tensor == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the layout of tensors is not known");
        return -1;
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        if (PyObject_TypeCheck(PyTuple_GET_ITEM(given, i), layout.tensor)) continue;
        PyErr_SetString(PyExc_TypeError, "a Watch takes tensors as tensors only");
        return -1;
    }
    self->tensors = objects(length);
    self->places = PyMem_Calloc(length ? length : 1, FIXED * sizeof(uint64_t));
    if (self->tensors == NULL || self->places == NULL) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        return -1;
    }
    size_t words = 0;
    for (Py_ssize_t i = 0; i < length; i++) {
        uint64_t *place = self->places + FIXED * i;
        self->tensors[i] = Py_NewRef(PyTuple_GET_ITEM(given, i));
        self->tensor_count = i + 1;
        read_words(self->tensors[i], place);
        if (place[RANK] > 2) words += 2 * place[RANK];
    }
    if (words == 0) return 0;
    uint64_t *form = self->forms = PyMem_Calloc(words, sizeof(uint64_t));
    if (form == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        uint64_t rank = self->places[FIXED * i + RANK];
        if (rank <= 2) continue;
        note_form(self->tensors[i], rank, form);
        form += 2 * rank;
    }
    return 0;
}

static PyObject *watch_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"dicts",   "lists",     "collections", "cells", "slots", "tensors",
                            "classes", "functions", "questions",   NULL};
    PyObject *dicts, *lists, *sets, *cells, *slots, *tensors, *classes, *functions, *questions;
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "O!O!O!O!O!O!O!O!O!", names, &PyTuple_Type, &dicts, &PyTuple_Type, &lists, &PyTuple_Type,
            &sets, &PyTuple_Type, &cells, &PyTuple_Type, &slots, &PyTuple_Type, &tensors, &PyTuple_Type, &classes,
            &PyTuple_Type, &functions, &PyTuple_Type, &questions))
        return NULL;
    Watch *self = (Watch *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    if (take_dicts(self, dicts) < 0 || take_tensors(self, tensors) < 0 || note_writes(self) < 0 ||
        take_pairs(lists, &self->lists, &self->items, &self->list_count, is_list, &PyTuple_Type) < 0 ||
        take_pairs(sets, &self->sets, &self->members, &self->set_count, is_any, &PyTuple_Type) < 0 ||
        take_pairs(cells, &self->cells, &self->contents, &self->cell_count, is_cell, NULL) < 0 ||
        take_pairs(slots, &self->slotted, &self->slots, &self->slot_count, is_any, &PyTuple_Type) < 0 ||
        take_pairs(questions, &self->questions, &self->answers, &self->question_count, is_callable, NULL) < 0 ||
        take_classes(self, classes) < 0 || take_functions(self, functions) < 0 ||
        !are_slots(self)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

#define EACH(array, count)                                                                                             \
    for (Py_ssize_t i = 0; (array) != NULL && i < (count); i++)

static int watch_traverse(Watch *self, visitproc visit, void *arg) {
    EACH(self->dicts, self->dict_count) Py_VISIT(self->dicts[i]);
    EACH(self->values, self->key_count) Py_VISIT(self->values[i]);
    EACH(self->lists, self->list_count) { Py_VISIT(self->lists[i]); Py_VISIT(self->items[i]); }
    EACH(self->sets, self->set_count) { Py_VISIT(self->sets[i]); Py_VISIT(self->members[i]); }
    EACH(self->cells, self->cell_count) { Py_VISIT(self->cells[i]); Py_VISIT(self->contents[i]); }
    EACH(self->slotted, self->slot_count) { Py_VISIT(self->slotted[i]); Py_VISIT(self->slots[i]); }
    EACH(self->tensors, self->tensor_count) Py_VISIT(self->tensors[i]);
    EACH(self->classes, self->class_count) { Py_VISIT(self->classes[i]); Py_VISIT(self->mros[i]); }
    EACH(self->functions, self->function_count) Py_VISIT(self->functions[i]);
    EACH(self->parts, PARTS * self->function_count) Py_VISIT(self->parts[i]);
    EACH(self->questions, self->question_count) { Py_VISIT(self->questions[i]); Py_VISIT(self->answers[i]); }
    return 0;
}

/* Empty an array; the count is 0 before any object dies, as its death may run code that asks this Watch. */
static void drop(PyObject ***array, Py_ssize_t count) {
    PyObject **held = *array;
    *array = NULL;
    for (Py_ssize_t i = 0; held != NULL && i < count; i++) Py_XDECREF(held[i]);
    PyMem_Free(held);
}

static int watch_clear(Watch *self) {
    Py_ssize_t dicts = self->dict_count, keys = self->key_count, lists = self->list_count, sets = self->set_count;
    Py_ssize_t cells = self->cell_count, slots = self->slot_count, tensors = self->tensor_count;
    Py_ssize_t classes = self->class_count, functions = self->function_count, questions = self->question_count;
    self->slot_count = self->class_count = self->function_count = self->question_count = 0;
    self->dict_count = self->key_count = self->list_count = self->set_count = self->cell_count = self->tensor_count = 0;
    drop(&self->dicts, dicts);
    drop(&self->keys, keys);
    drop(&self->values, keys);
    drop(&self->lists, lists);
    drop(&self->items, lists);
    drop(&self->sets, sets);
    drop(&self->members, sets);
    drop(&self->cells, cells);
    drop(&self->contents, cells);
    drop(&self->slotted, slots);
    drop(&self->slots, slots);
    drop(&self->tensors, tensors);
    drop(&self->classes, classes);
    drop(&self->mros, classes);
    drop(&self->functions, functions);
    drop(&self->parts, PARTS * functions);
    drop(&self->questions, questions);
    drop(&self->answers, questions);
    return 0;
}

static void watch_dealloc(Watch *self) {
    PyObject_GC_UnTrack(self);
    watch_clear(self);
    PyMem_Free(self->dict_keys);
    PyMem_Free(self->places);
    PyMem_Free(self->forms);
#if !HAS_WATCHERS
    PyMem_Free(self->versions);
#endif
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef watch_methods[] = {
    {"holds", (PyCFunction)watch_holds, METH_NOARGS, "Whether nothing that is watched has changed."},
    {"changed", (PyCFunction)watch_changed, METH_NOARGS, "Return kind and number of the first change, or None."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject WatchType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "gearcache.guards.watch._watched.Watch",
    .tp_basicsize = sizeof(Watch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Objects as they were when it was made: dicts, lists, collections, cells, slots, tensors, "
              "classes, functions, questions.",
    .tp_new = watch_new,
    .tp_dealloc = (destructor)watch_dealloc,
    .tp_traverse = (traverseproc)watch_traverse,
    .tp_clear = (inquiry)watch_clear,
    .tp_methods = watch_methods,
};

static PyObject *set_tensor_layout(PyObject *module, PyObject *args) {
    PyTypeObject *tensor;
    Py_ssize_t offsets[7];
    if (!PyArg_ParseTuple(args, "O!nnnnnnn", &PyType_Type, &tensor, offsets, offsets + 1, offsets + 2, offsets + 3,
                          offsets + 4, offsets + 5, offsets + 6))
        return NULL;
    for (int i = 0; i < 7; i++) {
        if (offsets[i] >= 0 && offsets[i] <= LONGEST && offsets[i] % 8 == 0) continue;
        PyErr_SetString(PyExc_ValueError, "an offset is no multiple of a word, or too large");
        return NULL;
    }
    layout.implementation = offsets[0];
    layout.storage = offsets[1];
    layout.data = offsets[2];
    layout.rank = offsets[3];
    layout.sizes = offsets[4];
    layout.strides = offsets[5];
    layout.offset = offsets[6];
    Py_INCREF(tensor);
    Py_XSETREF(layout.tensor, tensor);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"set_tensor_layout", set_tensor_layout, METH_VARARGS,
     "Set the class of tensors, and offsets in bytes: implementation; storage in it; data in that; rank, sizes, strides, "
     "storage offset."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_watched", "See guards/watch/watch.py.", -1, functions};

PyMODINIT_FUNC PyInit__watched(void) {
    if (PyType_Ready(&WatchType) < 0) return NULL;
#if HAS_WATCHERS
    if (watcher < 0 && (watcher = PyDict_AddWatcher(written)) < 0) return NULL;
#endif
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
    if (PyModule_AddObjectRef(module, "Watch", (PyObject *)&WatchType) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
