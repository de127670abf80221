/* The Python side of matching and scoring. */
#include <stdlib.h>

#include "module.h"
#include "kernels.h"

typedef struct {
    Shard shard;
    Buffers buffers;
} HeldShard;

static void free_shard(PyObject *capsule) {
    HeldShard *held = PyCapsule_GetPointer(capsule, SHARD);
    if (!held) return;
    release(&held->buffers);
    free(held);
}

/* The array at a place of a tuple. */
static PyObject *at(PyObject *arrays, Py_ssize_t place) { return PyTuple_GetItem(arrays, place); }

/* Take all arrays of a shard; returns false with an error set. */
static bool take_shard(Buffers *b, PyObject *matching, PyObject *forward, PyObject *terms, PyObject *pages, Shard *s) {
    int64_t ends = -1, runs = -1, items;
    const uint8_t *flags = NULL;
    Forward *f = &s->forward;
    f->documents = f->items = s->id_items = s->postings = -1;
    if (!(s->term_runs = take(b, at(matching, 0), "term_runs", 4, false, &ends))) return false;
    if (!(s->term_postings = take(b, at(matching, 1), "term_postings", 4, false, &ends))) return false;
    if (!(s->term_ids = take(b, at(matching, 2), "term_ids", 4, false, &ends))) return false;
    items = ends - 1;
    if (!(s->tenths = take(b, at(matching, 3), "term_tenths", 1, false, &items))) return false;
    if (!(s->hundredths = take(b, at(matching, 4), "term_hundredths", 1, false, &items))) return false;
    if (!(s->run_windows = take(b, at(matching, 5), "run_windows", 2, false, &runs))) return false;
    if (!(s->run_counts = take(b, at(matching, 6), "run_counts", 2, false, &runs))) return false;
    if (!(s->ids = take(b, at(matching, 7), "ids", 2, false, &s->id_items))) return false;
    if (!(s->impacts = take(b, at(matching, 8), "impacts", 1, false, &s->postings))) return false;
    if (!(f->offsets = take(b, at(forward, 0), "forward_offsets", 4, false, &f->documents))) return false;
    if (!(f->terms = take_either(b, at(forward, 1), "forward_terms", 2, 4, false, &f->items, &f->wide))) return false;
    if (!(f->impacts = take(b, at(forward, 2), "forward_impacts", 1, false, &f->items))) return false;
    if (terms != Py_None && !(s->verified_terms = take(b, terms, "verified_terms", 1, false, &items))) return false;
    if (pages != Py_None && !(flags = take(b, pages, "verified_pages", 1, false, NULL))) return false;
    for (int i = 0; i < 3; i++) s->pages[i].verified = flags ? flags + s->pages[i].first : NULL;
    s->terms = items, s->runs = runs;
    if (items >= 0 && f->documents >= 1) return true;
    PyErr_SetString(PyExc_ValueError, "the arrays do not fit together");
    return false;
}

PyObject *py_shard(PyObject *self, PyObject *args) {
    PyObject *matching, *forward, *terms, *flags;
    long long v, first[3], head[3];
    HeldShard *held = calloc(1, sizeof *held);
    (void)self;
    if (!held) return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "O!O!OO((LL)(LL)(LL))L", &PyTuple_Type, &matching, &PyTuple_Type, &forward, &terms, &flags,
                          first, head, first + 1, head + 1, first + 2, head + 2, &v))
        goto failed;
    for (int i = 0; i < 3; i++) held->shard.pages[i] = (Pages){NULL, first[i], head[i]};
    if (PyTuple_Size(matching) != 9 || PyTuple_Size(forward) != 3 || v < 0) {
        PyErr_SetString(PyExc_ValueError, "the number of arrays or the size of the vocabulary is not possible");
        goto failed;
    }
    if (!take_shard(&held->buffers, matching, forward, terms, flags, &held->shard)) goto failed;
    held->shard.forward.documents--;
    held->shard.forward.vocabulary = v;
    return PyCapsule_New(held, SHARD, free_shard);
failed:
    release(&held->buffers);
    free(held);
    return NULL;
}

/* Append a number to a list; returns false with an error set. */
static bool append(PyObject *list, PyObject *number) {
    bool done = number && PyList_Append(list, number) == 0;
    Py_XDECREF(number);
    return done;
}

/* Return (state, matched, postings, ordinals, scores, counts) of what was found; UNVERIFIED: only ordinals. */
static PyObject *found_tuple(int state, const Found *found) {
    PyObject *documents = PyList_New(0), *scores = PyList_New(0), *counts = PyList_New(0);
    bool done = documents && scores && counts;
    for (int64_t at = 0; done && state >= 0 && at < found->number; at++) {
        if (state == UNVERIFIED) {
            done = append(documents, PyLong_FromUnsignedLong(found->unverified[at].document));
            continue;
        }
        done = append(documents, PyLong_FromUnsignedLong(found->hits[at].document)) &&
               append(scores, PyFloat_FromDouble(found->hits[at].score)) &&
               append(counts, PyLong_FromLong(found->hits[at].count));
    }
    if (done)
        return Py_BuildValue("(iLLNNN)", state, (long long)found->matched, (long long)found->postings, documents,
                             scores, counts);
    Py_XDECREF(documents), Py_XDECREF(scores), Py_XDECREF(counts);
    return NULL;
}

static bool check_query(const Query *query) {
    if (query->required >= 1 && query->required <= UINT16_MAX + 1 && query->k >= 0 && query->dk >= 0 &&
        query->terms <= UINT16_MAX)
        return true;
    PyErr_SetString(PyExc_ValueError, "required, k, dk, or the number of terms is not possible");
    return false;
}

PyObject *py_match(PyObject *self, PyObject *args) {
    PyObject *capsule, *a[5], *result = NULL;
    long long required, k, dk;
    int state;
    int64_t documents, same;
    bool taken;
    Buffers b = {.count = 0};
    Query query = {.terms = -1};
    Found found;
    HeldShard *held;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOLLLffOdO", &capsule, a, a + 1, a + 2, &required, &k, &dk, &query.floor,
                          &query.scan_share, a + 3, &query.deadline, a + 4))
        return NULL;
    held = PyCapsule_GetPointer(capsule, SHARD);
    if (!held) return NULL;
    documents = same = held->shard.forward.documents;
    query.required = required, query.dk = dk, query.k = k < documents ? k : documents;
    taken = (query.ids = take(&b, a[0], "ids", 4, false, &query.terms)) &&
            (query.weights = take(&b, a[1], "weights", 4, false, &query.terms)) &&
            (query.counted = take(&b, a[2], "counted", 1, false, &query.terms)) &&
            (a[3] == Py_None || (query.allowed = take(&b, a[3], "allowed", 1, false, &documents))) &&
            (a[4] == Py_None || (query.marks = take(&b, a[4], "marks", 1, true, &same)));
    if (taken && check_query(&query)) {
        Py_BEGIN_ALLOW_THREADS
        state = match_shard(&held->shard, &query, &found);
        Py_END_ALLOW_THREADS result = state == NO_MEMORY ? PyErr_NoMemory() : found_tuple(state, &found);
    }
    release(&b);
    return result;
}

PyObject *py_impacts(PyObject *self, PyObject *args) {
    PyObject *capsule, *documents, *found;
    long long term;
    Buffers b = {.count = 0};
    int64_t count = -1;
    const int64_t *places;
    uint8_t *impacts;
    int state = DONE;
    HeldShard *held;
    bool taken;
    (void)self;
    if (!PyArg_ParseTuple(args, "OLOO", &capsule, &term, &documents, &found)) return NULL;
    held = PyCapsule_GetPointer(capsule, SHARD);
    if (!held) return NULL;
    taken = (places = take(&b, documents, "documents", 8, false, &count)) &&
            (impacts = take(&b, found, "impacts", 1, true, &count));
    for (int64_t i = 0; taken && state == DONE && i < count; i++) {
        int impact = find_impact(&held->shard, term, places[i]);
        if (impact < 0) state = DAMAGED;
        impacts[i] = (uint8_t)impact;
    }
    release(&b);
    return taken ? PyLong_FromLong(state) : NULL;
}

PyObject *py_score(PyObject *self, PyObject *args) {
    PyObject *a[8];
    long long dk, vocabulary;
    Buffers b = {.count = 0};
    Forward f = {.documents = -1, .items = -1};
    Query query = {.terms = -1};
    int64_t count = -1;
    const int64_t *documents;
    float *scores;
    uint16_t *counts;
    int state = DAMAGED;
    bool taken;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOLOOLOO", a, a + 1, a + 2, a + 3, &dk, a + 4, a + 5, &vocabulary, a + 6, a + 7))
        return NULL;
    taken = (f.offsets = take(&b, a[0], "offsets", 4, false, &f.documents)) &&
            (f.terms = take_either(&b, a[1], "terms", 2, 4, false, &f.items, &f.wide)) &&
            (f.impacts = take(&b, a[2], "impacts", 1, false, &f.items)) &&
            (documents = take(&b, a[3], "documents", 8, false, &count)) &&
            (query.ids = take(&b, a[4], "ids", 4, false, &query.terms)) &&
            (query.weights = take(&b, a[5], "weights", 4, false, &query.terms)) &&
            (scores = take(&b, a[6], "scores", 4, true, &count)) &&
            (counts = take(&b, a[7], "counts", 2, true, &count));
    if (taken && (f.documents < 1 || vocabulary < 0 || dk < 0)) {
        PyErr_SetString(PyExc_ValueError, "offsets, dk or the size of the vocabulary are not possible");
        taken = false;
    }
    if (taken) {
        f.documents--, f.vocabulary = vocabulary, query.dk = dk;
        Py_BEGIN_ALLOW_THREADS
        state = score_documents(&f, documents, count, &query, scores, counts);
        Py_END_ALLOW_THREADS
    }
    release(&b);
    return taken ? number_or_error(state) : NULL;
}

PyObject *py_workspace_bytes(PyObject *self, PyObject *args) {
    (void)self, (void)args;
    return PyLong_FromLongLong(workspace_bytes());
}

PyObject *py_choose_instructions(PyObject *self, PyObject *args) {
    const char *name = NULL, *chosen;
    (void)self;
    if (!PyArg_ParseTuple(args, "|z", &name)) return NULL;
    chosen = choose_instructions(name);
    return chosen ? PyUnicode_FromString(chosen) : Py_NewRef(Py_None);
}
