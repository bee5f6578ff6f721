/* Whether what a loaded graph was built on is still there: asked before every call.

   A Watch notes the state of what is added to it: dictionaries (attributes of modules and objects, globals, members of
   classes) with the keys that matter and the very objects found there; objects with their class and their dictionary;
   lists, sets and closure cells with their items; tensors with where their memory is. `holds()` compares. A dictionary
   is first told by whether it was written at all: CPython up to 3.11 numbers the writes of every dictionary, from 3.12
   on a watcher tells the writes of the watched ones. Only where one was written are its keys looked up again, so that a
   write to another key costs a lookup and no more. Of a class with very many keys that matter a copy of its dictionary
   is kept in place of them. The bases of a class are told by its `__mro__`, a function by its code and its defaults.

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

#define NONE (-1)
#define ANY (-2) /* any write of a dictionary counts */

typedef struct {
    PyObject *key, *value; /* a value of NULL: the key is absent; or a set of keys and a copy of the dictionary */
    Py_ssize_t next;       /* the number of the next link of the dictionary, or NONE */
} Link;

/* `version`: up to 3.11 the number of its last write, from 3.12 on how many writes there were when it was added. */
typedef struct {
    PyObject *dict;
    uint64_t version;
} Dict;

typedef struct {
    PyObject *object;
    PyTypeObject *type;
    PyObject **place, *dict; /* where the object keeps its dictionary (`no_dict` if it has none), and that */
} Object;

static PyObject *no_dict = NULL;

#define FIXED 10 /* words that are noted of a tensor, see read_words */

typedef struct {
    uint64_t words[FIXED];
} Place;

/* What is told by one object that is noted of it. */
enum { CLASS, FUNCTION, LIST, CELL, SLOT, COLLECTION, QUESTION, KINDS };
static const char *const kind_names[KINDS] = {"class", "function", "list", "cell", "slot", "collection", "question"};

typedef struct {
    PyObject **objects, **noted;
    Py_ssize_t count;
} Pairs;

typedef struct {
    PyObject_HEAD
    Py_ssize_t dict_count, link_count, object_count, tensor_count, form_words;
    Dict *dicts;
    Py_ssize_t *firsts; /* of each dictionary: the link of its first key, NONE, or ANY */
    Py_ssize_t *named;  /* of each dictionary: the link of a set of keys, or NONE */
    Link *links;
    Object *objects;
    PyObject **tensors;
    Place *places;
    uint64_t *forms; /* of tensors of more than two dims, or NULL */
    Pairs pairs[KINDS];
#if HAS_WATCHERS
    uint64_t epoch;
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
    if (self->named[index] != NONE) {
        Link link = self->links[self->named[index]];
        int holds = named_keys_hold(self->dicts[index].dict, link.key, link.value);
        if (holds <= 0) return holds;
    }
    if (self->firsts[index] == ANY) return 0;
    for (Py_ssize_t i = self->firsts[index]; i != NONE; i = self->links[i].next) {
        PyObject *found = PyDict_GetItemWithError(self->dicts[index].dict, self->links[i].key);
        if (found == NULL && PyErr_Occurred()) return -1;
        if (found == self->links[i].value) continue;
        Py_XINCREF(found);
        int same = same_value(found, self->links[i].value);
        if (same <= 0) {
            Py_XDECREF(found);
            return same;
        }
        Py_XSETREF(self->links[i].value, found);
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
        differing |= differing_words(self->tensors[i], self->places[i].words);
    if (differing == 0 && self->forms == NULL) return -1;
    const uint64_t *form = self->forms;
    for (Py_ssize_t i = 0; i < self->tensor_count; i++) {
        const uint64_t *place = self->places[i].words;
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
        uint64_t now = epoch;
        for (Py_ssize_t i = 0; i < self->dict_count; i++) {
            uint64_t version = self->dicts[i].version;
            uint64_t count = now - (version > self->epoch ? version : self->epoch);
            int is_written = count > REMEMBERED;
            for (uint64_t back = 1; !is_written && back <= count; back++)
                is_written = written_dicts[(now - back) % REMEMBERED] == self->dicts[i].dict;
            if (!is_written) continue;
            int holds = keys_hold(self, i);
            if (holds <= 0) return holds < 0 ? -2 : i;
        }
        self->epoch = now;
    }
#else
    uint64_t differing = 0;
    for (Py_ssize_t i = 0; i < self->dict_count; i++)
        differing |= version_of(self->dicts[i].dict) ^ self->dicts[i].version;
    if (differing == 0) return -1;
    for (Py_ssize_t i = 0; i < self->dict_count; i++) {
        uint64_t version = version_of(self->dicts[i].dict);
        if (version == self->dicts[i].version) continue;
        int holds = keys_hold(self, i);
        if (holds <= 0) return holds < 0 ? -2 : i;
        self->dicts[i].version = version;
    }
#endif
    return -1;
}

static inline uintptr_t differs(const Object *each) {
    return ((uintptr_t)Py_TYPE(each->object) ^ (uintptr_t)each->type) | ((uintptr_t)*each->place ^ (uintptr_t)each->dict);
}

/* Return the number of the first object that has another class, or another dictionary in place of its own; -1 for none. */
static Py_ssize_t changed_object(Watch *self) {
    uintptr_t differing = 0;
    for (Py_ssize_t i = 0; i < self->object_count; i++) differing |= differs(self->objects + i);
    if (differing == 0) return -1;
    Py_ssize_t number = 0;
    while (!differs(self->objects + number)) number++;
    return number;
}

static inline int class_holds(PyObject *cls, PyObject *bases) { return ((PyTypeObject *)cls)->tp_mro == bases; }

static inline PyObject *none_for_null(PyObject *value) { return value == NULL ? Py_None : value; }

static inline int function_holds(PyObject *function, PyObject *parts) {
    PyFunctionObject *held = (PyFunctionObject *)function;
    return (none_for_null(held->func_code) == PyTuple_GET_ITEM(parts, 0)) &
           (none_for_null(held->func_defaults) == PyTuple_GET_ITEM(parts, 1)) &
           (none_for_null(held->func_kwdefaults) == PyTuple_GET_ITEM(parts, 2));
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

/* The content of an empty cell is noted as the cell itself. */
static int cell_holds(PyObject *cell, PyObject *content) {
    PyObject *found = PyCell_GET(cell);
    if (found == NULL || found == content) return found == content || content == cell;
    return same_value(found, content);
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

#define RETURN_CHANGED(kind, holds)                                                                                    \
    for (Py_ssize_t i = 0; i < self->pairs[kind].count; i++) {                                                         \
        int same = holds(self->pairs[kind].objects[i], self->pairs[kind].noted[i]);                                    \
        if (same > 0) continue;                                                                                        \
        *number = same < 0 ? -2 : i;                                                                                   \
        return kind_names[kind];                                                                                       \
    }

/* Return what no longer holds as (kind, number), NULL for nothing; `number` is -2 with an error set. */
static const char *changed_thing(Watch *self, Py_ssize_t *number) {
    if ((*number = changed_dict(self)) != -1) return "dictionary";
    if ((*number = changed_object(self)) != -1) return "object";
    if ((*number = changed_tensor(self)) != -1) return "tensor";
    RETURN_CHANGED(CLASS, class_holds)
    RETURN_CHANGED(FUNCTION, function_holds)
    RETURN_CHANGED(LIST, list_holds)
    RETURN_CHANGED(CELL, cell_holds)
    RETURN_CHANGED(SLOT, slot_holds)
    RETURN_CHANGED(COLLECTION, items_hold)
    RETURN_CHANGED(QUESTION, answer_holds)
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

/* ---- adding ------------------------------------------------------------------------------------------------------ */

/* Return a larger array where one of `count` items is full, which it is at each power of two; NULL with an error set. */
static void *grown(void *array, Py_ssize_t count, size_t size) {
    if ((count & (count - 1)) != 0) return array;
    void *larger = PyMem_Realloc(array, (count == 0 ? 1 : 2 * count) * size);
    if (larger == NULL) PyErr_NoMemory();
    return larger;
}

#define MAKE_ROOM(array, count)                                                                                        \
    do {                                                                                                               \
        void *larger = grown((array), (count), sizeof *(array));                                                       \
        if (larger == NULL) return -1;                                                                                 \
        (array) = larger;                                                                                              \
    } while (0)

static PyObject *refuse(const char *what) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "a Watch takes %s", what);
    return NULL;
}

#if PY_VERSION_HEX >= 0x030D0000
/* From 3.13 on the values of an object's dictionary may lie in the object itself, where CPython 3.13.0 tells no watcher
   of a write. A key that is no text makes the dictionary keep its values on its own. */
static int leave_object(PyObject *dict) {
    if (((PyDictObject *)dict)->ma_values == NULL) return 0;
    PyObject *key = (PyObject *)Py_TYPE(dict); /* a key that no attribute can have */
    int is_there = PyDict_Contains(dict, key);
    if (is_there != 0) return is_there < 0 ? -1 : 0;
    return PyDict_SetItem(dict, key, Py_None) < 0 || PyDict_DelItem(dict, key) < 0 ? -1 : 0;
}
#endif

/* Return the dictionary of a holder, which is one or a class; NULL with an error set. */
static PyObject *dict_of(PyObject *holder) {
    if (PyType_Check(holder)) {
#if HAS_WATCHERS
        return PyType_GetDict((PyTypeObject *)holder);
#else
        return Py_XNewRef(((PyTypeObject *)holder)->tp_dict);
#endif
    }
    if (!PyDict_Check(holder)) return refuse("keys of a dictionary or a class");
#if PY_VERSION_HEX >= 0x030D0000
    if (leave_object(holder) < 0) return NULL;
#endif
    return Py_NewRef(holder);
}

/* Add a dictionary, of which it takes the reference, without keys; returns its number, -1 with an error set. */
static Py_ssize_t add_dict(Watch *self, PyObject *dict, uint64_t version) {
    MAKE_ROOM(self->dicts, self->dict_count);
    MAKE_ROOM(self->firsts, self->dict_count);
    MAKE_ROOM(self->named, self->dict_count);
    self->dicts[self->dict_count] = (Dict){dict, version};
    self->firsts[self->dict_count] = self->named[self->dict_count] = NONE;
    return self->dict_count++;
}

static int add_link(Watch *self, PyObject *key, PyObject *value, Py_ssize_t next) {
    MAKE_ROOM(self->links, self->link_count);
    self->links[self->link_count++] = (Link){Py_NewRef(key), Py_XNewRef(value), next};
    return 0;
}

/* Note what some keys lead to, beside those that are noted. */
static int add_some_keys(Watch *self, Py_ssize_t number, PyObject *keys) {
    PyObject *each, *iterator = PyObject_GetIter(keys);
    if (iterator == NULL) return -1;
    while ((each = PyIter_Next(iterator)) != NULL) {
        /* Keys whose comparison runs no code of a user's. */
        int is_right = PyUnicode_CheckExact(each) || PyLong_CheckExact(each) || PyBytes_CheckExact(each);
        if (!is_right) refuse("keys that are texts, ints or bytes");
        PyObject *found = is_right ? PyDict_GetItemWithError(self->dicts[number].dict, each) : NULL;
        if (!PyErr_Occurred() && add_link(self, each, found, self->firsts[number]) == 0)
            self->firsts[number] = self->link_count - 1;
        Py_DECREF(each);
        if (PyErr_Occurred()) break;
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : 0;
}

/* add_keys(holder, keys, number=-1): watch some keys of a dictionary or class, all for None, those in a frozenset. What
   they lead to now is what is expected. `number` is that of an earlier call for this holder; returns the number. */
static PyObject *watch_add_keys(Watch *self, PyObject *args) {
    PyObject *holder, *keys;
    Py_ssize_t number = NONE;
    if (!PyArg_ParseTuple(args, "OO|n", &holder, &keys, &number)) return NULL;
    if (number >= self->dict_count) return refuse("numbers that it has returned");
    if (number < 0) {
        PyObject *dict = dict_of(holder);
        if (dict == NULL) return refuse("keys of a dictionary or a class");
#if HAS_WATCHERS
        uint64_t version = PyDict_Watch(watcher, dict) < 0 ? 0 : epoch;
#else
        uint64_t version = version_of(dict);
#endif
        number = PyErr_Occurred() ? -1 : add_dict(self, dict, version);
        if (number < 0) {
            Py_DECREF(dict);
            return NULL;
        }
    }
    if (keys == Py_None) {
        self->firsts[number] = ANY;
    } else if (PyFrozenSet_CheckExact(keys)) {
        PyObject *copy = PyDict_Copy(self->dicts[number].dict);
        int failed = copy == NULL || add_link(self, keys, copy, NONE) < 0;
        Py_XDECREF(copy);
        if (failed) return NULL;
        self->named[number] = self->link_count - 1;
    } else if (self->firsts[number] != ANY && add_some_keys(self, number, keys) < 0) {
        return NULL;
    }
    return PyLong_FromSsize_t(number);
}

static int add_object(Watch *self, PyObject *object) {
    MAKE_ROOM(self->objects, self->object_count);
    PyObject **place = _PyObject_GetDictPtr(object), *dict = NULL;
    /* Some objects make their dictionary when it is read for the first time. */
    if (place == NULL) place = &no_dict;
    else if ((dict = PyObject_GenericGetDict(object, NULL)) == NULL) return -1;
    PyTypeObject *type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(object));
    self->objects[self->object_count++] = (Object){Py_NewRef(object), type, place, dict};
    return 0;
}

static int add_tensor(Watch *self, PyObject *tensor, const uint64_t *words, const uint64_t *form) {
    MAKE_ROOM(self->tensors, self->tensor_count);
    MAKE_ROOM(self->places, self->tensor_count);
    Place place;
    if (words == NULL) read_words(tensor, place.words);
    else memcpy(place.words, words, sizeof place.words);
    uint64_t rank = place.words[RANK];
    if (rank > 2) {
        uint64_t *forms = PyMem_Realloc(self->forms, (self->form_words + 2 * rank) * sizeof(uint64_t));
        if (forms == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->forms = forms;
        if (form == NULL) note_form(tensor, rank, forms + self->form_words);
        else memcpy(forms + self->form_words, form, 2 * rank * sizeof(uint64_t));
        self->form_words += 2 * rank;
    }
    self->places[self->tensor_count] = place;
    self->tensors[self->tensor_count++] = Py_NewRef(tensor);
    return 0;
}

static int add_pair(Pairs *pairs, PyObject *object, PyObject *noted) {
    MAKE_ROOM(pairs->objects, pairs->count);
    MAKE_ROOM(pairs->noted, pairs->count);
    pairs->objects[pairs->count] = Py_NewRef(object);
    pairs->noted[pairs->count++] = Py_NewRef(noted);
    return 0;
}

/* Return what is noted of the slot of an object: its descriptor, and the value, or the descriptor where it is not set. */
static PyObject *slot_of(PyObject *object, PyObject *descriptor) {
    if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return refuse("slots with their descriptor");
    PyObject *found = Py_TYPE(descriptor)->tp_descr_get(descriptor, object, (PyObject *)Py_TYPE(object));
    if (found == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
        PyErr_Clear();
        found = Py_NewRef(descriptor);
    }
    PyObject *slot = PyTuple_Pack(2, descriptor, found);
    Py_DECREF(found);
    return slot;
}

/* Return what is noted of an object; NULL with an error set. */
static PyObject *state_of(int kind, PyObject *object, PyObject *detail) {
    switch (kind) {
    case CLASS:
        return PyType_Check(object) ? Py_NewRef(((PyTypeObject *)object)->tp_mro) : refuse("classes");
    case FUNCTION: {
        if (!PyFunction_Check(object)) return refuse("functions");
        PyFunctionObject *held = (PyFunctionObject *)object;
        return PyTuple_Pack(3, none_for_null(held->func_code), none_for_null(held->func_defaults),
                            none_for_null(held->func_kwdefaults));
    }
    case LIST:
        return PyList_Check(object) ? PyList_AsTuple(object) : refuse("lists");
    case CELL:
        return PyCell_Check(object) ? Py_NewRef(PyCell_GET(object) == NULL ? object : PyCell_GET(object)) : refuse("cells");
    case SLOT:
        return slot_of(object, detail);
    case COLLECTION:
        return PySequence_Tuple(object);
    default:
        return PyCallable_Check(object) ? PyObject_CallNoArgs(object) : refuse("questions that can be called");
    }
}

static int kind_of(const char *name) {
    int kind = 0;
    while (kind < KINDS && strcmp(name, kind_names[kind]) != 0) kind++;
    return kind;
}

/* add(kind, object, detail=None): watch an object of a kind; its present state is what is expected. */
static PyObject *watch_add(Watch *self, PyObject *args) {
    const char *name;
    PyObject *object, *detail = Py_None;
    if (!PyArg_ParseTuple(args, "sO|O", &name, &object, &detail)) return NULL;
    int kind = kind_of(name), failed;
    if (strcmp(name, "object") == 0) {
        failed = add_object(self, object) < 0;
    } else if (strcmp(name, "tensor") == 0) {
        if (layout.tensor == NULL || !PyObject_TypeCheck(object, layout.tensor)) return refuse("tensors, of a known layout");
        failed = add_tensor(self, object, NULL, NULL) < 0;
    } else if (kind < KINDS) {
        PyObject *noted = state_of(kind, object, detail);
        failed = noted == NULL || add_pair(self->pairs + kind, object, noted) < 0;
        Py_XDECREF(noted);
    } else {
        return refuse("no such kind");
    }
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static int copy_dict(Watch *self, Watch *other, Py_ssize_t from) {
    Py_ssize_t number = add_dict(self, Py_NewRef(other->dicts[from].dict), other->dicts[from].version);
    if (number < 0) {
        Py_DECREF(other->dicts[from].dict);
        return -1;
    }
#if HAS_WATCHERS
    if (self->epoch > other->epoch) self->epoch = other->epoch;
#endif
    if (other->named[from] != NONE) {
        Link link = other->links[other->named[from]];
        if (add_link(self, link.key, link.value, NONE) < 0) return -1;
        self->named[number] = self->link_count - 1;
    }
    if (other->firsts[from] == ANY) self->firsts[number] = ANY;
    for (Py_ssize_t i = other->firsts[from]; i >= 0; i = other->links[i].next) {
        if (add_link(self, other->links[i].key, other->links[i].value, self->firsts[number]) < 0) return -1;
        self->firsts[number] = self->link_count - 1;
    }
    return 0;
}

static int copy_tensor(Watch *self, Watch *other, Py_ssize_t number) {
    const uint64_t *form = other->forms;
    for (Py_ssize_t i = 0; i < number; i++)
        if (other->places[i].words[RANK] > 2) form += 2 * other->places[i].words[RANK];
    return add_tensor(self, other->tensors[number], other->places[number].words, form);
}

static int copy_object(Watch *self, const Object *from) {
    MAKE_ROOM(self->objects, self->object_count);
    Py_INCREF(from->object);
    Py_INCREF(from->type);
    Py_XINCREF(from->dict);
    self->objects[self->object_count++] = *from;
    return 0;
}

static PyTypeObject WatchType;

/* copy(other, kind, number): watch what another Watch watches, in the state that it has noted. */
static PyObject *watch_copy(Watch *self, PyObject *args) {
    Watch *other;
    const char *name;
    Py_ssize_t number;
    if (!PyArg_ParseTuple(args, "O!sn", &WatchType, &other, &name, &number)) return NULL;
    int kind = kind_of(name), failed = 1, is_there = 0;
    if (strcmp(name, "dictionary") == 0) {
        if ((is_there = number >= 0 && number < other->dict_count)) failed = copy_dict(self, other, number) < 0;
    } else if (strcmp(name, "object") == 0) {
        if ((is_there = number >= 0 && number < other->object_count)) failed = copy_object(self, other->objects + number) < 0;
    } else if (strcmp(name, "tensor") == 0) {
        if ((is_there = number >= 0 && number < other->tensor_count)) failed = copy_tensor(self, other, number) < 0;
    } else if (kind < KINDS && (is_there = number >= 0 && number < other->pairs[kind].count)) {
        Pairs *pairs = other->pairs + kind;
        failed = add_pair(self->pairs + kind, pairs->objects[number], pairs->noted[number]) < 0;
    }
    if (!is_there) return refuse("numbers of a kind that the other one has");
    if (failed) return NULL;
    Py_RETURN_NONE;
}

/* ---- the type ---------------------------------------------------------------------------------------------------- */

static PyObject *watch_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    if (!PyArg_ParseTuple(args, "")) return NULL;
    Watch *self = (Watch *)type->tp_alloc(type, 0);
#if HAS_WATCHERS
    if (self != NULL) self->epoch = epoch;
#endif
    return (PyObject *)self;
}

static int watch_traverse(Watch *self, visitproc visit, void *arg) {
    for (Py_ssize_t i = 0; i < self->dict_count; i++) Py_VISIT(self->dicts[i].dict);
    for (Py_ssize_t i = 0; i < self->link_count; i++) Py_VISIT(self->links[i].value);
    for (Py_ssize_t i = 0; i < self->object_count; i++) {
        Py_VISIT(self->objects[i].object);
        Py_VISIT(self->objects[i].type);
        Py_VISIT(self->objects[i].dict);
    }
    for (Py_ssize_t i = 0; i < self->tensor_count; i++) Py_VISIT(self->tensors[i]);
    for (int kind = 0; kind < KINDS; kind++)
        for (Py_ssize_t i = 0; i < self->pairs[kind].count; i++) {
            Py_VISIT(self->pairs[kind].objects[i]);
            Py_VISIT(self->pairs[kind].noted[i]);
        }
    return 0;
}

/* Take what it holds out before any object dies: the death may run code that asks this Watch. */
static int watch_clear(Watch *self) {
    Watch held = *self;
    memset(&self->dict_count, 0, sizeof *self - offsetof(Watch, dict_count));
    for (Py_ssize_t i = 0; i < held.dict_count; i++) Py_DECREF(held.dicts[i].dict);
    for (Py_ssize_t i = 0; i < held.link_count; i++) {
        Py_DECREF(held.links[i].key);
        Py_XDECREF(held.links[i].value);
    }
    for (Py_ssize_t i = 0; i < held.object_count; i++) {
        Py_DECREF(held.objects[i].object);
        Py_DECREF(held.objects[i].type);
        Py_XDECREF(held.objects[i].dict);
    }
    for (Py_ssize_t i = 0; i < held.tensor_count; i++) Py_DECREF(held.tensors[i]);
    for (int kind = 0; kind < KINDS; kind++) {
        for (Py_ssize_t i = 0; i < held.pairs[kind].count; i++) {
            Py_DECREF(held.pairs[kind].objects[i]);
            Py_DECREF(held.pairs[kind].noted[i]);
        }
        PyMem_Free(held.pairs[kind].objects);
        PyMem_Free(held.pairs[kind].noted);
    }
    void *arrays[] = {held.dicts, held.firsts, held.named, held.links, held.objects, held.tensors, held.places, held.forms};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) PyMem_Free(arrays[i]);
    return 0;
}

static void watch_dealloc(Watch *self) {
    PyObject_GC_UnTrack(self);
    watch_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef watch_methods[] = {
    {"add_keys", (PyCFunction)watch_add_keys, METH_VARARGS, "Watch keys of a dictionary or class; returns its number."},
    {"add", (PyCFunction)watch_add, METH_VARARGS, "Watch an object of a kind, in its present state."},
    {"copy", (PyCFunction)watch_copy, METH_VARARGS, "Watch what another Watch has under a number of a kind."},
    {"holds", (PyCFunction)watch_holds, METH_NOARGS, "Whether nothing that is watched has changed."},
    {"changed", (PyCFunction)watch_changed, METH_NOARGS, "Return kind and number of the first change, or None."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject WatchType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "gearcache.guards.watch._watched.Watch",
    .tp_basicsize = sizeof(Watch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Objects as they were when they were added to it.",
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
