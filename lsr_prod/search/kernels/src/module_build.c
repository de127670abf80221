/* The Python side of the build. The arrays are of this process, so only lengths that the kernels do not check are
 * checked. */
#include "build.h"
#include "module.h"

static bool take_rows(Buffers *b, PyObject *offsets, PyObject *terms, PyObject *impacts, int64_t vocabulary,
                      Rows *rows) {
    int64_t items = -1, same;
    rows->count = -1, rows->impacts = NULL;
    if (!(rows->offsets = take(b, offsets, "offsets", 4, false, &rows->count))) return false;
    if (!(rows->terms = take_either(b, terms, "terms", 2, 4, false, &items, &rows->wide))) return false;
    same = items;
    if (impacts && !(rows->impacts = take(b, impacts, "impacts", 1, false, &same))) return false;
    rows->count--;
    for (int64_t i = 0; i < rows->count; i++)
        if (rows->offsets[i + 1] < rows->offsets[i] || rows->offsets[i + 1] > items) goto wrong;
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
    PyObject *a[5];
    long long dk;
    Buffers b = {.count = 0};
    Rows rows;
    int64_t terms = -1, *runs, *postings, *ids;
    int state = DONE;
    bool taken;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOLOOO", a, a + 1, &dk, a + 2, a + 3, a + 4)) return NULL;
    taken = (runs = take(&b, a[2], "runs", 8, true, &terms)) &&
            (postings = take(&b, a[3], "postings", 8, true, &terms)) &&
            (ids = take(&b, a[4], "ids", 8, true, &terms)) && take_rows(&b, a[0], a[1], NULL, terms, &rows);
    if (taken) {
        Py_BEGIN_ALLOW_THREADS
        state = count_runs(&rows, dk, terms, runs, postings, ids);
        Py_END_ALLOW_THREADS
    }
    release(&b);
    return taken ? number_or_error(state) : NULL;
}

PyObject *py_fill_postings(PyObject *self, PyObject *args) {
    PyObject *a[10];
    long long dk;
    Buffers b = {.count = 0};
    Rows rows;
    int64_t terms = -1, run_items = -1, *next_posting, *next_id;
    const int64_t *runs;
    uint16_t *windows, *counts, *ids;
    uint8_t *impacts;
    int state = DONE;
    bool taken;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOLOOOOOOO", a, a + 1, a + 2, &dk, a + 3, a + 4, a + 5, a + 6, a + 7, a + 8, a + 9))
        return NULL;
    taken = (runs = take(&b, a[3], "runs", 8, false, &terms)) &&
            (next_posting = take(&b, a[4], "next_posting", 8, true, &terms)) &&
            (next_id = take(&b, a[5], "next_id", 8, true, &terms)) &&
            (windows = take(&b, a[6], "run_windows", 2, true, &run_items)) &&
            (counts = take(&b, a[7], "run_counts", 2, true, &run_items)) &&
            (ids = take(&b, a[8], "ids", 2, true, NULL)) && (impacts = take(&b, a[9], "impacts", 1, true, NULL)) &&
            take_rows(&b, a[0], a[1], a[2], terms, &rows);
    if (taken) {
        Py_BEGIN_ALLOW_THREADS
        state =
            fill_postings(&rows, dk, terms, runs, next_posting, next_id, windows, counts, ids, impacts);
        Py_END_ALLOW_THREADS
    }
    release(&b);
    return taken ? number_or_error(state) : NULL;
}

PyObject *py_rank_impacts(PyObject *self, PyObject *args) {
    PyObject *a[4];
    Buffers b = {.count = 0};
    int64_t ends = -1, terms;
    const uint32_t *term_postings;
    const uint8_t *impacts;
    uint8_t *tenths, *hundredths;
    bool taken;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO", a, a + 1, a + 2, a + 3)) return NULL;
    taken = (term_postings = take(&b, a[0], "term_postings", 4, false, &ends)) != NULL;
    terms = ends - 1;
    taken = taken && (impacts = take(&b, a[1], "impacts", 1, false, NULL)) &&
            (tenths = take(&b, a[2], "tenths", 1, true, &terms)) &&
            (hundredths = take(&b, a[3], "hundredths", 1, true, &terms));
    if (taken) {
        Py_BEGIN_ALLOW_THREADS
        rank_impacts(term_postings, terms, impacts, tenths, hundredths);
        Py_END_ALLOW_THREADS
    }
    release(&b);
    return taken ? PyLong_FromLong(DONE) : NULL;
}
