/* The Python side of the build. The arrays are of this process, so only lengths that the kernels do not check are checked. */
#include "build.h"
#include "module.h"

static bool take_rows(Buffers *b, PyObject *offsets, PyObject *terms, PyObject *impacts, int64_t vocabulary, Rows *rows) {
    int64_t items = -1, same;
    rows->count = -1, rows->impacts = NULL;
    if (!(rows->offsets = take(b, offsets, "offsets", 8, false, &rows->count))) return false;
    if (!(rows->terms = take_either(b, terms, "terms", 2, 4, false, &items, &rows->wide))) return false;
    same = items;
    if (impacts && !(rows->impacts = take(b, impacts, "impacts", 1, false, &same))) return false;
    rows->count--;
    for (int64_t i = 0; i < rows->count; i++)
        if (rows->offsets[i] < 0 || rows->offsets[i + 1] < rows->offsets[i] || rows->offsets[i + 1] > items) goto wrong;
    for (int64_t at = 0; at < items; at++) {
        int64_t term = rows->wide ? ((const int32_t *)rows->terms)[at] : ((const uint16_t *)rows->terms)[at];
        if (term < 0 || term >= vocabulary) goto wrong;
    }
    if (rows->count >= 0) return true;
wrong:
    PyErr_SetString(PyExc_ValueError, "the vectors have terms or offsets outside their range");
    return false;
}

PyObject *py_count_runs(PyObject *self, PyObject *args) {
    PyObject *a[4];
    long long dk, block_size;
    Buffers b = {.count = 0};
    Rows rows;
    int64_t terms = -1, *runs, *postings;
    int state = DONE;
    bool taken;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOLLOO", a, a + 1, &dk, &block_size, a + 2, a + 3)) return NULL;
    taken = (runs = take(&b, a[2], "runs", 8, true, &terms)) && (postings = take(&b, a[3], "postings", 8, true, &terms)) &&
            take_rows(&b, a[0], a[1], NULL, terms, &rows);
    if (taken) {
        Py_BEGIN_ALLOW_THREADS
        state = count_runs(&rows, dk, block_size, terms, runs, postings);
        Py_END_ALLOW_THREADS
    }
    release(&b);
    return taken ? number_or_error(state) : NULL;
}

PyObject *py_fill_postings(PyObject *self, PyObject *args) {
    PyObject *a[10];
    long long dk, block_size;
    Buffers b = {.count = 0};
    Rows rows;
    int64_t terms = -1, runs = -1, postings = -1, *next_run, *next_posting;
    uint8_t *gaps, *maxima, *impacts;
    void *counts, *ids;
    int state = DONE;
    bool taken, wide_counts = false, wide = false;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOLLOOOOOOO", a, a + 1, a + 2, &dk, &block_size, a + 3, a + 4, a + 5, a + 6, a + 7,
                          a + 8, a + 9))
        return NULL;
    taken = (next_run = take(&b, a[3], "next_run", 8, true, &terms)) &&
            (next_posting = take(&b, a[4], "next_posting", 8, true, &terms)) &&
            (gaps = take(&b, a[5], "run_gaps", 1, true, &runs)) &&
            (counts = take_either(&b, a[6], "run_counts", 1, 2, true, &runs, &wide_counts)) &&
            (maxima = take(&b, a[7], "run_maxima", 1, true, &runs)) &&
            (ids = take_either(&b, a[8], "ids", 1, 2, true, &postings, &wide)) &&
            (impacts = take(&b, a[9], "impacts", 1, true, &postings)) && take_rows(&b, a[0], a[1], a[2], terms, &rows);
    if (taken && wide_counts != wide) {
        PyErr_SetString(PyExc_TypeError, "ids and run_counts have different types");
        taken = false;
    }
    if (taken) {
        Py_BEGIN_ALLOW_THREADS
        state = fill_postings(&rows, dk, block_size, terms, next_run, next_posting, gaps, counts, maxima, ids, wide,
                              impacts);
        Py_END_ALLOW_THREADS
    }
    release(&b);
    return taken ? number_or_error(state) : NULL;
}

static bool take_runs(Buffers *b, PyObject *term_runs, PyObject *gaps, PyObject *counts, Runs *runs) {
    int64_t items = -1;
    runs->terms = -1;
    if (!(runs->term_runs = take(b, term_runs, "term_runs", 4, false, &runs->terms))) return false;
    if (!(runs->gaps = take(b, gaps, "run_gaps", 1, false, &items))) return false;
    if (!(runs->counts = take(b, counts, "run_counts", 1, false, &items))) return false;
    runs->terms--;
    return true;
}

PyObject *py_measure_compressed(PyObject *self, PyObject *args) {
    PyObject *a[5];
    Buffers b = {.count = 0};
    Runs runs;
    int64_t starts = -1, *id_starts, *impact_starts;
    bool taken;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOO", a, a + 1, a + 2, a + 3, a + 4)) return NULL;
    taken = take_runs(&b, a[0], a[1], a[2], &runs);
    if (taken) starts = runs.terms + 1;
    taken = taken && (id_starts = take(&b, a[3], "term_ids", 8, true, &starts)) &&
            (impact_starts = take(&b, a[4], "term_impacts", 8, true, &starts));
    if (taken) {
        Py_BEGIN_ALLOW_THREADS
        measure_compressed(&runs, id_starts, impact_starts);
        Py_END_ALLOW_THREADS
    }
    release(&b);
    return taken ? PyLong_FromLong(DONE) : NULL;
}

PyObject *py_compress_runs(PyObject *self, PyObject *args) {
    PyObject *a[8];
    Buffers b = {.count = 0};
    Runs runs;
    const int64_t *term_postings;
    const uint8_t *ids, *impacts;
    uint8_t *packed_ids, *packed_impacts;
    int64_t starts = -1;
    bool taken;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOOOOO", a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6, a + 7)) return NULL;
    taken = take_runs(&b, a[0], a[2], a[3], &runs) && (term_postings = take(&b, a[1], "term_postings", 8, false, &starts)) &&
            (ids = take(&b, a[4], "ids", 1, false, NULL)) && (impacts = take(&b, a[5], "impacts", 1, false, NULL)) &&
            (packed_ids = take(&b, a[6], "compressed_ids", 1, true, NULL)) &&
            (packed_impacts = take(&b, a[7], "compressed_impacts", 1, true, NULL));
    if (taken) {
        Py_BEGIN_ALLOW_THREADS
        compress_runs(&runs, term_postings, ids, impacts, packed_ids, packed_impacts);
        Py_END_ALLOW_THREADS
    }
    release(&b);
    return taken ? PyLong_FromLong(DONE) : NULL;
}

PyObject *py_bisect_sets(PyObject *self, PyObject *args) {
    PyObject *a[6];
    long long first, last, vocabulary;
    Buffers b = {.count = 0};
    Rows rows;
    int64_t count = -1, sets = -1, bounds_count = -1, *places;
    const int64_t *bounds, *cuts;
    const float *logs;
    int state = DONE;
    bool taken;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOLLOOLO", a, a + 1, a + 2, &first, &last, a + 3, a + 4, &vocabulary, a + 5)) return NULL;
    taken = (places = take(&b, a[0], "places", 8, true, &count)) &&
            (bounds = take(&b, a[1], "bounds", 8, false, &bounds_count)) && (cuts = take(&b, a[2], "cuts", 8, false, &sets)) &&
            (logs = take(&b, a[5], "logs", 4, false, NULL)) && take_rows(&b, a[3], a[4], NULL, vocabulary, &rows);
    if (taken && (first < 0 || last > sets || bounds_count != sets + 1 || rows.count != count)) {
        PyErr_SetString(PyExc_ValueError, "the sets do not fit the vectors");
        taken = false;
    }
    if (taken) {
        Py_BEGIN_ALLOW_THREADS
        state = bisect_sets(places, bounds, cuts, first, last, &rows, vocabulary, logs);
        Py_END_ALLOW_THREADS
    }
    release(&b);
    return taken ? number_or_error(state) : NULL;
}
