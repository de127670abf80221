/* The Python side of matching and scoring. */
#include <stdlib.h>

#include "batch.h"
#include "kernels.h"
#include "module.h"

#define POSTINGS "lsr_prod.search.kernels.Postings"

typedef struct {
    Postings postings;
    Buffers buffers;
} Held;

static void free_postings(PyObject *capsule) {
    Held *held = PyCapsule_GetPointer(capsule, POSTINGS);
    if (!held) return;
    release(&held->buffers);
    free(held);
}

PyObject *py_postings(PyObject *self, PyObject *args) {
    PyObject *a[10];
    long long documents, block_size;
    int compressed;
    bool wide_counts;
    int64_t terms = -1, gaps = -1, counts = -1, items;
    Held *held = calloc(1, sizeof *held);
    Postings *p = held ? &held->postings : NULL;
    Buffers *b = held ? &held->buffers : NULL;
    (void)self;
    if (!held) return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOLLp", a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6, a + 7, a + 8, a + 9,
                          &documents, &block_size, &compressed))
        goto failed;
    if (documents < 0 || block_size < 1 || block_size > 1 << 16 || (compressed && block_size > 256)) {
        PyErr_SetString(PyExc_ValueError, "the number of documents or the block size is not possible");
        goto failed;
    }
    p->documents = documents, p->block_size = block_size, p->compressed = compressed;
    p->blocks = (documents + block_size - 1) / block_size;
    if (!(p->term_runs = take(b, a[0], "term_runs", 4, false, &terms))) goto failed;
    items = terms;
    if (!(p->term_postings = take(b, a[1], "term_postings", 8, false, &items))) goto failed;
    if (!(p->run_gaps = take(b, a[2], "run_gaps", 1, false, &gaps))) goto failed;
    if (!(p->run_counts = take_either(b, a[3], "run_counts", 1, 2, false, &counts, &wide_counts))) goto failed;
    items = gaps;
    if (!(p->run_maxima = take(b, a[4], "run_maxima", 1, false, &items))) goto failed;
    items = terms;
    if (!(p->term_ids = take(b, a[5], "term_ids", 8, false, &items))) goto failed;
    if (!(p->term_impacts = take(b, a[6], "term_impacts", 8, false, &items))) goto failed;
    p->id_items = p->impact_items = -1;
    if (!(p->ids = take_either(b, a[7], "ids", 1, 2, false, &p->id_items, &p->wide))) goto failed;
    if (!(p->impacts = take(b, a[8], "impacts", 1, false, &p->impact_items))) goto failed;
    items = documents;
    if (!(p->id_rank = take(b, a[9], "id_rank", 4, false, &items))) goto failed;
    if (counts != gaps || wide_counts != p->wide || p->wide != (block_size > 256) || terms < 1) {
        PyErr_SetString(PyExc_ValueError, "the arrays do not fit together");
        goto failed;
    }
    p->terms = terms - 1;
    p->runs = gaps;
    return PyCapsule_New(held, POSTINGS, free_postings);
failed:
    release(b);
    free(held);
    return NULL;
}

/* Return (state, matched, skipped, postings, ordinals, scores, counts) of what was found. */
static PyObject *found_tuple(int state, const Found *found) {
    Py_ssize_t number = (Py_ssize_t)found->number;
    PyObject *documents = PyList_New(number), *scores = PyList_New(number), *counts = PyList_New(number);
    for (Py_ssize_t at = 0; documents && scores && counts && at < number; at++) {
        const Hit *hit = &found->hits[at];
        PyObject *document = PyLong_FromLongLong(hit->document), *score = PyFloat_FromDouble(hit->score);
        PyObject *count = PyLong_FromLong(hit->count);
        PyList_SetItem(documents, at, document);
        PyList_SetItem(scores, at, score);
        PyList_SetItem(counts, at, count);
        if (!document || !score || !count) Py_CLEAR(counts);
    }
    if (!documents || !scores || !counts) {
        Py_XDECREF(documents), Py_XDECREF(scores), Py_XDECREF(counts);
        return NULL;
    }
    return Py_BuildValue("(iLiLNNN)", state, (long long)found->matched, (int)found->skipped, (long long)found->postings,
                         documents, scores, counts);
}

/* Read the arguments of a query; returns false with an error set. */
static bool take_query(Buffers *b, PyObject *ids, PyObject *weights, PyObject *counted, PyObject *allowed,
                       int64_t documents, Query *query) {
    int64_t items;
    query->terms = -1;
    if (!(query->ids = take(b, ids, "ids", 4, false, &query->terms))) return false;
    if (!(query->weights = take(b, weights, "weights", 4, false, &query->terms))) return false;
    if (!(query->counted = take(b, counted, "counted", 1, false, &query->terms))) return false;
    query->allowed = NULL;
    items = documents;
    if (allowed != Py_None && !(query->allowed = take(b, allowed, "allowed", 1, false, &items))) return false;
    if (query->terms > UINT16_MAX) {
        PyErr_SetString(PyExc_ValueError, "a query has at most 65,535 terms");
        return false;
    }
    return true;
}

PyObject *py_match(PyObject *self, PyObject *args) {
    PyObject *capsule, *ids, *weights, *counted, *allowed, *result;
    long long required, k;
    int exhaustive, state;
    Buffers buffers = {.count = 0};
    Query query;
    Found found;
    Held *held;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOLLfpOd", &capsule, &ids, &weights, &counted, &required, &k, &query.floor,
                          &exhaustive, &allowed, &query.deadline))
        return NULL;
    held = PyCapsule_GetPointer(capsule, POSTINGS);
    if (!held) return NULL;
    if (required < 1 || k < 0) {
        PyErr_SetString(PyExc_ValueError, "required must be 1 or more, and k 0 or more");
        return NULL;
    }
    query.required = required;
    query.k = k < held->postings.documents ? k : held->postings.documents;
    query.exhaustive = exhaustive;
    if (!take_query(&buffers, ids, weights, counted, allowed, held->postings.documents, &query)) {
        release(&buffers);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    state = match_shard(&held->postings, &query, &found);
    Py_END_ALLOW_THREADS
    result = state == NO_MEMORY ? PyErr_NoMemory() : found_tuple(state, &found);
    release(&buffers);
    return result;
}

/* Read the arguments of a batch; returns false with an error set. */
static bool take_batch(Buffers *b, PyObject **a, int64_t documents, Batch *batch) {
    int64_t terms = -1, sizes = -1, hits, items = documents;
    batch->queries = -1, batch->allowed = NULL;
    if (!(batch->floors = take(b, a[4], "floors", 4, false, &batch->queries))) return false;
    hits = batch->queries * batch->k;
    if (!(batch->numbers = take(b, a[9], "numbers", 8, true, &batch->queries))) return false;
    if (!(batch->documents = take(b, a[6], "documents", 8, true, &hits))) return false;
    if (!(batch->scores = take(b, a[7], "scores", 4, true, &hits))) return false;
    if (!(batch->counts = take(b, a[8], "counts", 2, true, &hits))) return false;
    hits = batch->queries + 1;
    if (!(batch->offsets = take(b, a[0], "offsets", 8, false, &hits))) return false;
    if (!(batch->ids = take(b, a[1], "ids", 4, false, &terms))) return false;
    if (!(batch->weights = take(b, a[2], "weights", 4, false, &terms))) return false;
    if (!(batch->required = take(b, a[3], "required", 8, false, &sizes))) return false;
    if (a[5] != Py_None && !(batch->allowed = take(b, a[5], "allowed", 1, false, &items))) return false;
    for (int64_t i = 0; i < batch->queries; i++) {
        int64_t size = batch->offsets[i + 1] - batch->offsets[i];
        if (batch->offsets[i] < 0 || size < 0 || size >= sizes || size > UINT16_MAX || batch->offsets[i + 1] > terms) {
            PyErr_SetString(PyExc_ValueError, "the offsets do not fit the queries");
            return false;
        }
    }
    return true;
}

PyObject *py_match_batch(PyObject *self, PyObject *args) {
    PyObject *capsule, *a[10];
    long long k, vocabulary;
    Buffers buffers = {.count = 0};
    Batch batch;
    int64_t failed = 0;
    int state = DONE;
    bool taken;
    Held *held;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOOOOLLfddOOOO", &capsule, a, a + 1, a + 2, a + 3, a + 4, a + 5, &k, &vocabulary,
                          &batch.step, &batch.largest, &batch.deadline, a + 6, a + 7, a + 8, a + 9))
        return NULL;
    held = PyCapsule_GetPointer(capsule, POSTINGS);
    if (!held) return NULL;
    if (k < 0 || vocabulary < 0) {
        PyErr_SetString(PyExc_ValueError, "k and the size of the vocabulary must be 0 or more");
        return NULL;
    }
    batch.k = k, batch.vocabulary = vocabulary;
    taken = take_batch(&buffers, a, held->postings.documents, &batch);
    if (taken) {
        Py_BEGIN_ALLOW_THREADS
        state = match_batch(&held->postings, &batch, &failed);
        Py_END_ALLOW_THREADS
    }
    release(&buffers);
    if (!taken) return NULL;
    return state == NO_MEMORY ? PyErr_NoMemory() : Py_BuildValue("(iL)", state, (long long)failed);
}

PyObject *py_score(PyObject *self, PyObject *args) {
    PyObject *a[8];
    long long dk, vocabulary;
    Buffers b = {.count = 0};
    Forward f = {.documents = -1, .items = -1};
    int64_t count = -1, terms = -1, items;
    const int64_t *documents;
    const int32_t *ids;
    const float *weights;
    float *scores;
    uint16_t *counts;
    int state = DAMAGED;
    bool taken;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOLOOLOO", a, a + 1, a + 2, a + 3, &dk, a + 4, a + 5, &vocabulary, a + 6, a + 7))
        return NULL;
    taken = (f.offsets = take(&b, a[0], "offsets", 8, false, &f.documents)) &&
            (f.terms = take_either(&b, a[1], "terms", 2, 4, false, &f.items, &f.wide));
    items = f.items;
    taken = taken && (f.impacts = take(&b, a[2], "impacts", 1, false, &items)) &&
            (documents = take(&b, a[3], "documents", 8, false, &count)) &&
            (ids = take(&b, a[4], "ids", 4, false, &terms)) && (weights = take(&b, a[5], "weights", 4, false, &terms)) &&
            (scores = take(&b, a[6], "scores", 4, true, &count)) && (counts = take(&b, a[7], "counts", 2, true, &count));
    if (taken && (f.documents < 1 || vocabulary < 0 || dk < 0)) {
        PyErr_SetString(PyExc_ValueError, "offsets, dk or the size of the vocabulary are not possible");
        taken = false;
    }
    if (taken) {
        f.documents--, f.vocabulary = vocabulary;
        Py_BEGIN_ALLOW_THREADS
        state = score_documents(&f, documents, count, dk, ids, weights, terms, scores, counts);
        Py_END_ALLOW_THREADS
    }
    release(&b);
    return taken ? number_or_error(state) : NULL;
}

PyObject *py_workspace_bytes(PyObject *self, PyObject *args) {
    (void)self, (void)args;
    return PyLong_FromLongLong(workspace_bytes());
}
