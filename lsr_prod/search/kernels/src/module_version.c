/* The Python side of a search in all shards of a version: from a mapping or arrays to hits. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "module.h"
#include "version.h"

#define VERSION "lsr_prod.search.kernels.Version"
#define FIELDS 5 /* of a hit */

typedef struct {
    Version version;
    PyObject *members; /* keeps shards alive */
    Py_buffer *views;  /* of alive, names and flags */
    Py_ssize_t viewed;
} Held;

static void free_held(Held *held) {
    while (held->viewed) PyBuffer_Release(&held->views[--held->viewed]);
    for (int64_t i = 0; held->version.members && i < held->version.count; i++)
        free((void *)held->version.members[i].names);
    free(held->version.members), free(held->views);
    Py_XDECREF(held->members);
    free(held);
}

static void free_version(PyObject *capsule) {
    Held *held = PyCapsule_GetPointer(capsule, VERSION);
    if (held) free_held(held);
}

/* View an array of bytes, of `size` items unless that is negative. */
static const void *view(Held *held, PyObject *array, int64_t size, int64_t *bytes) {
    Py_buffer *buffer = &held->views[held->viewed];
    if (PyObject_GetBuffer(array, buffer, PyBUF_SIMPLE)) return NULL;
    held->viewed++;
    if (bytes) *bytes = buffer->len;
    if (size >= 0 && buffer->len < size) {
        PyErr_SetString(PyExc_ValueError, "an array of a version is too short");
        return NULL;
    }
    return buffer->buf ? buffer->buf : "";
}

/* Read a member (shard, number, alive, [(documents, offsets, text)], verified); returns false with an error set. */
static bool take_member(Held *held, PyObject *given, Member *member) {
    PyObject *capsule, *alive, *batches, *verified;
    long long number;
    Py_ssize_t count;
    Names *names;
    if (!PyArg_ParseTuple(given, "OLOO!O", &capsule, &number, &alive, &PyList_Type, &batches, &verified)) return false;
    member->shard = PyCapsule_GetPointer(capsule, SHARD); /* the first item of what it holds */
    if (!member->shard) return false;
    count = PyList_Size(batches);
    member->number = number, member->batches = count;
    names = calloc((size_t)count + 1, sizeof *names);
    member->names = names;
    if (!names) return PyErr_NoMemory(), false;
    if (alive != Py_None && !(member->alive = view(held, alive, member->shard->forward.documents, NULL))) return false;
    if (verified != Py_None && !(member->verified = view(held, verified, count, NULL))) return false;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *offsets, *text;
        long long documents;
        if (!PyArg_ParseTuple(PyList_GetItem(batches, i), "LOO", &documents, &offsets, &text)) return false;
        names[i].documents = documents;
        if (!(names[i].offsets = view(held, offsets, 8 * (documents + 1), NULL))) return false;
        if (!(names[i].text = view(held, text, -1, &names[i].size))) return false;
    }
    return true;
}

PyObject *py_version(PyObject *self, PyObject *args) {
    PyObject *members;
    long long batch;
    Py_ssize_t count, views = 0;
    Held *held = calloc(1, sizeof *held);
    (void)self;
    if (!held) return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "O!L", &PyTuple_Type, &members, &batch)) goto failed;
    held->members = Py_NewRef(members);
    count = PyTuple_Size(members);
    held->version.batch = batch > 0 ? batch : 1, held->version.count = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *batches = PyTuple_GetItem(PyTuple_GetItem(members, i), 3);
        if (!batches) goto failed;
        views += 2 + 2 * PyList_Size(batches);
    }
    held->views = calloc((size_t)views + 1, sizeof *held->views);
    held->version.members = calloc((size_t)count + 1, sizeof *held->version.members);
    if (!held->views || !held->version.members) {
        PyErr_NoMemory();
        goto failed;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (!take_member(held, PyTuple_GetItem(members, i), &held->version.members[i])) goto failed;
    return PyCapsule_New(held, VERSION, free_version);
failed:
    free_held(held);
    return NULL;
}

/* A term of a query. */
typedef struct {
    float weight;
    int32_t id;
    PyObject *name; /* borrowed */
} Term;

static int heavier_first(const void *one, const void *other) {
    const Term *a = one, *b = other;
    if (a->weight != b->weight) return a->weight > b->weight ? -1 : 1;
    if (a->id != b->id) return a->id > b->id ? 1 : -1;
    return a->name && b->name ? PyUnicode_Compare(a->name, b->name) : 0;
}

static int smaller_first(const void *one, const void *other) {
    const Term *a = one, *b = other;
    return (a->id > b->id) - (a->id < b->id);
}

static bool has_twins(Term *terms, int64_t count) {
    qsort(terms, (size_t)count, sizeof *terms, smaller_first);
    for (int64_t i = 1; i < count; i++)
        if (terms[i].id == terms[i - 1].id && terms[i].id >= 0) return true;
    return false;
}

/* Read one item of a vector; returns 1, 0 if only Python code can judge it, or -1 with an error set. */
static int read_term(PyObject *term, PyObject *weight, PyObject *ids, PyObject *names, Term *read) {
    PyObject *id = term;
    double value;
    if (!PyFloat_CheckExact(weight)) return 0;
    value = PyFloat_AsDouble(weight);
    if (!(value >= 0 && value <= FLT_MAX)) return 0;
    read->weight = (float)value, read->id = -1, read->name = term;
    if (PyUnicode_CheckExact(term)) {
        id = PyDict_GetItemWithError(ids, term);
        if (!id) return PyErr_Occurred() ? -1 : 1;
    } else if (!PyLong_CheckExact(term)) {
        return 0;
    }
    {
        int overflow;
        long found = PyLong_AsLongAndOverflow(id, &overflow);
        if (overflow || found < 0 || found >= PyList_Size(names)) return 0;
        read->id = (int32_t)found;
        read->name = PyList_GetItem(names, found);
    }
    return 1;
}

/* Return (ids, weights, terms) of the terms above 0, the heaviest first; None if only Python code can judge them. */
PyObject *py_read_vector(PyObject *self, PyObject *args) {
    PyObject *vector, *ids, *names, *term, *weight, *terms, *id_bytes, *weight_bytes;
    Py_ssize_t place = 0, kept = 0, size;
    Term *read;
    int fine = 1;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!O!", &vector, &PyDict_Type, &ids, &PyList_Type, &names)) return NULL;
    if (!PyDict_CheckExact(vector) || (size = PyDict_Size(vector)) > UINT16_MAX) return Py_NewRef(Py_None);
    read = malloc((size_t)(size + 1) * sizeof *read);
    if (!read) return PyErr_NoMemory();
    while (fine == 1 && kept < size && PyDict_Next(vector, &place, &term, &weight))
        fine = read_term(term, weight, ids, names, &read[kept++]);
    if (fine != 1 || has_twins(read, kept)) {
        free(read);
        return fine < 0 ? NULL : Py_NewRef(Py_None);
    }
    qsort(read, (size_t)kept, sizeof *read, heavier_first);
    while (kept && !(read[kept - 1].weight > 0)) kept--;
    terms = PyTuple_New(kept);
    id_bytes = PyBytes_FromStringAndSize(NULL, 4 * kept), weight_bytes = PyBytes_FromStringAndSize(NULL, 4 * kept);
    for (Py_ssize_t i = 0; terms && id_bytes && weight_bytes && i < kept; i++) {
        memcpy(PyBytes_AsString(id_bytes) + 4 * i, &read[i].id, 4);
        memcpy(PyBytes_AsString(weight_bytes) + 4 * i, &read[i].weight, 4);
        PyTuple_SetItem(terms, i, Py_NewRef(read[i].name));
    }
    free(read);
    if (terms && id_bytes && weight_bytes) return Py_BuildValue("(NNN)", id_bytes, weight_bytes, terms);
    Py_XDECREF(terms), Py_XDECREF(id_bytes), Py_XDECREF(weight_bytes);
    return NULL;
}

/* Make an instance of a subclass of tuple; takes the references of `items`. `given` holds a tuple, which is used again:
 * the new one copies its items. */
static PyObject *make_row(PyObject *type, PyObject *given, PyObject **items, Py_ssize_t count) {
    newfunc make = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    PyObject *plain = PyTuple_GetItem(given, 0);
    bool whole = true;
    for (Py_ssize_t i = 0; i < count; i++) {
        whole = whole && items[i];
        if (items[i]) PyTuple_SetItem(plain, i, items[i]);
    }
    return whole ? make((PyTypeObject *)type, given, NULL) : NULL;
}

/* Return the hits of the rows from `skipped` on. */
static PyObject *make_hits(const Merged *merged, int64_t skipped, PyObject *type) {
    int64_t number = merged->number > skipped ? merged->number - skipped : 0;
    PyObject *hits = PyTuple_New(number), *given = Py_BuildValue("(N)", PyTuple_New(FIELDS)), *fields = PyDict_New();
    for (int64_t i = 0; hits && given && fields && i < number; i++) {
        const Row *row = &merged->rows[skipped + i];
        PyObject *items[FIELDS] = {PyUnicode_DecodeUTF8(row->name, row->length, NULL),
                                   PyFloat_FromDouble(row->hit.score), PyLong_FromLong(row->hit.count),
                                   Py_NewRef(fields), Py_NewRef(Py_None)};
        PyObject *hit = make_row(type, given, items, FIELDS);
        if (!hit)
            Py_CLEAR(hits);
        else
            PyTuple_SetItem(hits, i, hit);
    }
    Py_XDECREF(given), Py_XDECREF(fields);
    if (!given || !fields) Py_CLEAR(hits);
    return hits;
}

/* Return the terms of a query with their weights. */
static PyObject *make_terms(PyObject *terms, const float *weights, PyObject *type) {
    Py_ssize_t number = PyTuple_Size(terms);
    PyObject *made = PyTuple_New(number), *given = Py_BuildValue("(N)", PyTuple_New(3));
    for (Py_ssize_t i = 0; made && given && i < number; i++) {
        PyObject *items[3] = {Py_NewRef(PyTuple_GetItem(terms, i)), PyFloat_FromDouble(weights[i]),
                              PyUnicode_InternFromString("terms")};
        PyObject *term = make_row(type, given, items, 3);
        if (!term)
            Py_CLEAR(made);
        else
            PyTuple_SetItem(made, i, term);
    }
    Py_XDECREF(given);
    if (!given) Py_CLEAR(made);
    return made;
}

/* Return the documents that must be verified before a search can end. */
static PyObject *unverified(const Merged *merged) {
    bool named = merged->found.unverified == NULL; /* the ids of hits, whose vectors were verified */
    PyObject *found = PyList_New(merged->found.number);
    for (int64_t i = 0; found && i < merged->found.number; i++) {
        unsigned long one = named ? merged->found.hits[i].document : merged->found.unverified[i].document;
        PyList_SetItem(found, i, PyLong_FromUnsignedLong(one));
    }
    return found;
}

/* Return what a search found; see native.pyi. */
static PyObject *search_result(int state, const Version *version, const Merged *merged, int64_t skipped, PyObject *type,
                               PyObject *terms) {
    bool done = state == DONE || state == PARTIAL;
    long long number = done ? merged->matched : state == INVALID ? 0 : version->members[merged->failed].number;
    PyObject *found;
    if (state == NO_MEMORY) return PyErr_NoMemory();
    found = done ? make_hits(merged, skipped, type) : state == UNVERIFIED ? unverified(merged) : Py_NewRef(Py_None);
    return found ? Py_BuildValue("(iLNO)", state, number, found, terms) : NULL;
}

/* Prepare a query over known terms, whose weights are scaled into `scaled`; returns false if a score would not fit. */
static bool scale_query(Query *query, const int32_t *ids, const float *weights, int64_t terms, double step,
                        double largest, int32_t *known, float *scaled) {
    double sum = 0;
    query->ids = known, query->weights = scaled, query->terms = 0;
    for (int64_t i = 0; i < terms; i++) {
        sum += weights[i];
        known[query->terms] = ids[i], scaled[query->terms] = weights[i] * (float)step;
        query->terms += ids[i] >= 0;
    }
    if (query->required > query->terms + 1) query->required = query->terms + 1; /* no document shares more */
    return sum * step * 255 <= largest;
}

PyObject *py_search(PyObject *self, PyObject *args) {
    PyObject *capsule, *ids, *weights, *names, *type, *term_type, *query_terms, *result = NULL;
    long long required, k, skipped, dk;
    double step, largest;
    int64_t terms = -1;
    const int32_t *given_ids;
    const float *given_weights;
    Buffers b = {.count = 0};
    Query query = {0};
    Merged merged = {0};
    Held *held;
    int state = INVALID;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO!LLLLffdddOO", &capsule, &ids, &weights, &PyTuple_Type, &names, &required, &k,
                          &skipped, &dk, &query.floor, &query.scan_share, &step, &largest, &query.deadline, &type,
                          &term_type))
        return NULL;
    held = PyCapsule_GetPointer(capsule, VERSION);
    if (!held) return NULL;
    query.required = required, query.k = k, query.dk = dk;
    terms = PyTuple_Size(names);
    if (required < 1 || k < 0 || dk < 0 || skipped < 0 || terms > UINT16_MAX) {
        PyErr_SetString(PyExc_ValueError, "required, k, skipped, dk, or the number of terms is not possible");
    } else if ((given_ids = take(&b, ids, "ids", 4, false, &terms)) &&
               (given_weights = take(&b, weights, "weights", 4, false, &terms))) {
        int32_t *known = malloc((size_t)(terms + 1) * sizeof *known);
        float *scaled = malloc((size_t)(terms + 1) * sizeof *scaled);
        if (!known || !scaled) {
            state = NO_MEMORY;
        } else if (scale_query(&query, given_ids, given_weights, terms, step, largest, known, scaled)) {
            Py_BEGIN_ALLOW_THREADS
            state = search_version(&held->version, &query, NULL, true, &merged);
            Py_END_ALLOW_THREADS
        }
        query_terms = make_terms(names, given_weights, term_type);
        if (query_terms) result = search_result(state, &held->version, &merged, skipped, type, query_terms);
        Py_XDECREF(query_terms);
        free(merged.rows), free(known), free(scaled);
    }
    release(&b);
    return result;
}

/* Many queries, as arrays. */
typedef struct {
    const int64_t *offsets; /* queries + 1 */
    const int32_t *ids;
    const float *weights;
    const int64_t *required; /* by number of terms */
    int64_t queries, vocabulary, k, dk;
    float floor, scan_share;
    double step, largest, deadline;
    const int64_t *starts;         /* number of the first document of each member */
    const uint8_t *const *allowed; /* by member, or NULL */
    int64_t *documents;            /* out: queries x k, like scores and counts */
    float *scores;
    uint16_t *counts;
    int64_t *numbers; /* out: hits of each query */
} Batch;

/* Memory of one query. */
typedef struct {
    Term *terms;
    int32_t *ids, *known;
    float *weights, *scaled;
} Prepared;

/* Sort the terms of a query, heaviest first, without those of weight 0; returns their number, or INVALID. */
static int64_t sort_terms(const Batch *batch, int64_t first, int64_t last, const Prepared *made) {
    int64_t kept = 0;
    for (int64_t at = first; at < last; at++) {
        float weight = batch->weights[at];
        if (!isfinite(weight) || weight < 0 || batch->ids[at] < 0 || batch->ids[at] >= batch->vocabulary)
            return INVALID;
        made->terms[kept] = (Term){weight, batch->ids[at], NULL};
        kept += weight > 0;
    }
    if (has_twins(made->terms, kept)) return INVALID;
    qsort(made->terms, (size_t)kept, sizeof *made->terms, heavier_first);
    for (int64_t i = 0; i < kept; i++) made->ids[i] = made->terms[i].id, made->weights[i] = made->terms[i].weight;
    return kept;
}

static int search_one(const Version *version, const Batch *batch, int64_t number, const Prepared *made,
                      Merged *merged) {
    Query query = {.k = batch->k, .dk = batch->dk, .floor = batch->floor, .scan_share = batch->scan_share};
    int64_t terms = sort_terms(batch, batch->offsets[number], batch->offsets[number + 1], made);
    int state;
    merged->failed = 0, batch->numbers[number] = 0;
    if (terms < 0) return INVALID;
    query.required = batch->required[terms], query.deadline = batch->deadline;
    if (!scale_query(&query, made->ids, made->weights, terms, batch->step, batch->largest, made->known, made->scaled))
        return INVALID;
    state = search_version(version, &query, batch->allowed, false, merged);
    if (state != DONE && state != PARTIAL) return state;
    for (int64_t i = 0; i < merged->number; i++) {
        const Row *row = &merged->rows[i];
        batch->documents[number * batch->k + i] = batch->starts[row->member] + row->hit.document;
        batch->scores[number * batch->k + i] = row->hit.score;
        batch->counts[number * batch->k + i] = row->hit.count;
    }
    batch->numbers[number] = merged->number;
    return state;
}

/* Search from query `first` on; returns the worst state, and the query that ended the call. */
static int search_all(const Version *version, const Batch *batch, int64_t first, Merged *merged, int64_t *failed) {
    size_t longest = 1;
    int worst = DONE;
    Prepared made;
    for (int64_t i = 0; i < batch->queries; i++)
        if (batch->offsets[i + 1] - batch->offsets[i] > (int64_t)longest)
            longest = (size_t)(batch->offsets[i + 1] - batch->offsets[i]);
    made.terms = malloc(longest * sizeof *made.terms);
    made.ids = malloc(longest * sizeof *made.ids), made.known = malloc((longest + 1) * sizeof *made.known);
    made.weights = malloc(longest * sizeof *made.weights), made.scaled = malloc((longest + 1) * sizeof *made.scaled);
    if (!made.terms || !made.ids || !made.known || !made.weights || !made.scaled) worst = NO_MEMORY;
    for (int64_t i = first; i < batch->queries && worst >= 0 && worst != UNVERIFIED; i++) {
        int state;
        free(merged->rows), merged->rows = NULL;
        state = search_one(version, batch, i, &made, merged);
        *failed = i;
        if (state != DONE) worst = state;
    }
    free(made.terms), free(made.ids), free(made.known), free(made.weights), free(made.scaled);
    return worst;
}

/* Read the arguments of a batch; returns false with an error set. */
static bool take_batch(Buffers *b, PyObject **a, const Version *version, Batch *batch) {
    int64_t terms = -1, sizes = -1, hits, members = version->count;
    batch->queries = -1;
    if (!(batch->numbers = take(b, a[4], "numbers", 8, true, &batch->queries))) return false;
    hits = batch->queries * batch->k;
    if (!(batch->documents = take(b, a[5], "documents", 8, true, &hits))) return false;
    if (!(batch->scores = take(b, a[6], "scores", 4, true, &hits))) return false;
    if (!(batch->counts = take(b, a[7], "counts", 2, true, &hits))) return false;
    hits = batch->queries + 1;
    if (!(batch->offsets = take(b, a[0], "offsets", 8, false, &hits))) return false;
    if (!(batch->ids = take(b, a[1], "ids", 4, false, &terms))) return false;
    if (!(batch->weights = take(b, a[2], "weights", 4, false, &terms))) return false;
    if (!(batch->required = take(b, a[3], "required", 8, false, &sizes))) return false;
    if (!(batch->starts = take(b, a[8], "starts", 8, false, &members))) return false;
    for (int64_t i = 0; i < batch->queries; i++) {
        int64_t size = batch->offsets[i + 1] - batch->offsets[i];
        if (batch->offsets[i] < 0 || size < 0 || size >= sizes || size > UINT16_MAX || batch->offsets[i + 1] > terms) {
            PyErr_SetString(PyExc_ValueError, "the offsets do not fit the queries");
            return false;
        }
    }
    return true;
}

/* View the masks of the members, a tuple of arrays or None; returns false with an error set. */
static bool take_masks(Buffers *b, PyObject *masks, const Version *version, const uint8_t **allowed) {
    for (int64_t i = 0; i < version->count; i++) {
        PyObject *mask = PyTuple_GetItem(masks, i);
        int64_t documents = version->members[i].shard->forward.documents;
        if (!mask) return false;
        if (mask == Py_None) continue;
        if (b->count == MOST) { /* as many as a call can hold; the caller keeps the others alive */
            Py_buffer view;
            if (PyObject_GetBuffer(mask, &view, PyBUF_SIMPLE)) return false;
            allowed[i] = view.len == documents ? view.buf : NULL;
            PyBuffer_Release(&view);
            if (allowed[i]) continue;
            PyErr_SetString(PyExc_ValueError, "a mask has another length than its shard");
            return false;
        }
        if (!(allowed[i] = take(b, mask, "allowed", 1, false, &documents))) return false;
    }
    return true;
}

PyObject *py_search_batch(PyObject *self, PyObject *args) {
    PyObject *capsule, *a[9], *masks, *result = NULL;
    long long first, k, dk, vocabulary;
    Buffers b = {.count = 0};
    Batch batch = {0};
    Merged merged = {0};
    const uint8_t **allowed = NULL;
    int64_t failed = 0;
    int state = DONE;
    Held *held;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOOLLLLffdddOOOOOO", &capsule, a, a + 1, a + 2, a + 3, &first, &k, &dk, &vocabulary,
                          &batch.floor, &batch.scan_share, &batch.step, &batch.largest, &batch.deadline, &masks, a + 4,
                          a + 5, a + 6, a + 7, a + 8))
        return NULL;
    held = PyCapsule_GetPointer(capsule, VERSION);
    if (!held) return NULL;
    if (first < 0 || k < 0 || dk < 0 || vocabulary < 0) {
        PyErr_SetString(PyExc_ValueError, "first, k, dk and the size of the vocabulary must be 0 or more");
        return NULL;
    }
    batch.k = k, batch.dk = dk, batch.vocabulary = vocabulary;
    if (masks != Py_None) {
        batch.allowed = allowed = calloc((size_t)held->version.count + 1, sizeof *allowed);
        if (!allowed) return PyErr_NoMemory();
    }
    if (take_batch(&b, a, &held->version, &batch) && (!allowed || take_masks(&b, masks, &held->version, allowed))) {
        Py_BEGIN_ALLOW_THREADS
        state = search_all(&held->version, &batch, first, &merged, &failed);
        Py_END_ALLOW_THREADS
        if (state == NO_MEMORY) {
            PyErr_NoMemory();
        } else {
            PyObject *needed = state == UNVERIFIED ? unverified(&merged) : PyList_New(0);
            long long number = held->version.count ? held->version.members[merged.failed].number : 0;
            if (needed) result = Py_BuildValue("(iLLN)", state, (long long)failed, number, needed);
        }
    }
    free(merged.rows), free((void *)allowed);
    release(&b);
    return result;
}
