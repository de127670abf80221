# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, auto_pickle=False
"""The Python side of the kernels: arrays come as buffers whose item sizes and lengths are checked; see native.pyi."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject, PyTypeObject
from libc.float cimport FLT_MAX
from libc.math cimport isfinite
from libc.stdint cimport UINT16_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memcpy, memset

cdef extern from "version.h" nogil:
    enum: DONE, PARTIAL, UNVERIFIED, DAMAGED, NO_MEMORY, INVALID

    ctypedef struct Forward:
        const uint32_t *offsets
        const void *terms
        const uint8_t *impacts
        int64_t documents, items, vocabulary
        bint wide

    ctypedef struct Pages:
        const uint8_t *verified
        int64_t first, head

    ctypedef struct ShardArrays "Shard":
        const uint32_t *term_runs
        const uint32_t *term_postings
        const uint32_t *term_ids
        const uint8_t *tenths
        const uint8_t *hundredths
        const uint16_t *run_windows
        const uint16_t *run_counts
        const uint16_t *ids
        const uint8_t *impacts
        const uint8_t *verified_terms
        int64_t terms, runs, id_items, postings
        Forward forward
        Pages pages[3]

    ctypedef struct Query:
        const int32_t *ids
        const float *weights
        const uint8_t *counted
        int64_t terms, required, k, dk
        float floor, scan_share
        double deadline
        const uint8_t *allowed
        uint8_t *marks

    ctypedef struct HitRow "Hit":
        float score
        uint32_t document
        uint16_t count

    ctypedef struct Candidate:
        uint32_t document

    ctypedef struct Found:
        const HitRow *hits
        const Candidate *unverified
        int64_t number, matched, postings

    ctypedef struct Names:
        const int64_t *offsets
        const char *text
        int64_t documents, size

    ctypedef struct Member:
        ShardArrays *shard
        int64_t number
        const uint8_t *alive
        const Names *names
        const uint8_t *verified
        int64_t batches, batch

    ctypedef struct Members "Version":
        Member *members
        int64_t count

    ctypedef struct Row:
        HitRow hit
        int64_t member
        const char *name
        int64_t length

    ctypedef struct Merged:
        Row *rows
        int64_t number, matched, failed
        Found found

    int match_shard(const ShardArrays *shard, const Query *query, Found *found)
    int find_impact(const ShardArrays *shard, int64_t term, int64_t document)
    int score_documents(const Forward *forward, const int64_t *documents, int64_t count, const Query *query,
                        float *scores, uint16_t *counts)
    int search_version(const Members *version, const Query *query, const uint8_t *const *allowed, bint named,
                       Merged *merged)
    const char *c_choose_instructions "choose_instructions"(const char *name)
    int64_t c_workspace_bytes "workspace_bytes"()
    const char *C_SOURCES "SOURCES"

cdef extern from "Python.h" nogil:
    int PyUnicode_Compare(PyObject *one, PyObject *other)  # reached with the GIL: only vectors of mappings have names

cdef extern from "Python.h":
    ctypedef object (*newfunc)(PyTypeObject *type, PyObject *items, PyObject *names)
    int Py_tp_new
    PyTypeObject PyTuple_Type
    void *PyType_GetSlot(PyTypeObject *type, int slot)
    str PyUnicode_DecodeUTF8(const char *text, Py_ssize_t size, const char *errors)
    tuple PyTuple_New(Py_ssize_t size)
    PyObject *PyTuple_GetItem(object items, Py_ssize_t place)
    int PyTuple_SetItem(PyObject *items, Py_ssize_t place, PyObject *item) except -1
    PyObject *new_reference "Py_NewRef"(object item)

SOURCES = C_SOURCES.decode()
c_choose_instructions(NULL)
cdef char nothing = 0
cdef newfunc make_tuple = <newfunc>PyType_GetSlot(&PyTuple_Type, Py_tp_new)


cdef class Arrays:
    """Views of arrays, released together."""

    cdef Py_buffer *views
    cdef Py_ssize_t count

    def __cinit__(self, Py_ssize_t room):
        self.views = <Py_buffer *>malloc((room + 1) * sizeof(Py_buffer))
        if not self.views:
            raise MemoryError

    def __dealloc__(self):
        while self.count:
            self.count -= 1
            PyBuffer_Release(&self.views[self.count])
        free(self.views)

    cdef void *take(self, array, str name, Py_ssize_t size, int64_t *items, bint writable) except? NULL:
        """View an array whose items have ``size`` bytes; ``items`` is its length, or gets it where it is negative."""
        cdef Py_buffer *view = &self.views[self.count]
        PyObject_GetBuffer(array, view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.count += 1
        if view.itemsize != size:
            raise TypeError(f"{name} has items of {view.itemsize} bytes; they must have {size}")
        if items and items[0] < 0:
            items[0] = view.len // size
        if items and items[0] != view.len // size:
            raise ValueError(f"{name} has {view.len // size} items; it must have {items[0]}")
        return view.buf

    cdef const void *take_bytes(self, array, int64_t size, int64_t *length) except? NULL:
        """View the bytes of an array, at least ``size`` of them."""
        cdef Py_buffer *view = &self.views[self.count]
        PyObject_GetBuffer(array, view, PyBUF_SIMPLE)
        self.count += 1
        if length:
            length[0] = view.len
        if view.len < size:
            raise ValueError("an array of a version is too short")
        if view.buf:
            return view.buf
        return &nothing


cdef class Shard:
    cdef ShardArrays arrays
    cdef Arrays held

    def __cinit__(self, tuple matching, tuple forward, verified_terms, verified_pages, tuple pages,
                  int64_t vocabulary_size):
        cdef ShardArrays *s = &self.arrays
        cdef Forward *f = &s.forward
        cdef Arrays a = Arrays(14)
        cdef const uint8_t *flags = NULL
        cdef int64_t ends = -1, items
        self.held = a
        if len(matching) != 9 or len(forward) != 3 or len(pages) != 3 or vocabulary_size < 0:
            raise ValueError("the number of arrays or the size of the vocabulary is not possible")
        f.documents = f.items = s.id_items = s.postings = s.runs = -1
        s.term_runs = <const uint32_t *>a.take(matching[0], "term_runs", 4, &ends, False)
        s.term_postings = <const uint32_t *>a.take(matching[1], "term_postings", 4, &ends, False)
        s.term_ids = <const uint32_t *>a.take(matching[2], "term_ids", 4, &ends, False)
        items = s.terms = ends - 1
        s.tenths = <const uint8_t *>a.take(matching[3], "term_tenths", 1, &items, False)
        s.hundredths = <const uint8_t *>a.take(matching[4], "term_hundredths", 1, &items, False)
        s.run_windows = <const uint16_t *>a.take(matching[5], "run_windows", 2, &s.runs, False)
        s.run_counts = <const uint16_t *>a.take(matching[6], "run_counts", 2, &s.runs, False)
        s.ids = <const uint16_t *>a.take(matching[7], "ids", 2, &s.id_items, False)
        s.impacts = <const uint8_t *>a.take(matching[8], "impacts", 1, &s.postings, False)
        f.wide = memoryview(forward[1]).itemsize == 4
        f.offsets = <const uint32_t *>a.take(forward[0], "forward_offsets", 4, &f.documents, False)
        f.terms = a.take(forward[1], "forward_terms", 4 if f.wide else 2, &f.items, False)
        f.impacts = <const uint8_t *>a.take(forward[2], "forward_impacts", 1, &f.items, False)
        if verified_terms is not None:
            s.verified_terms = <const uint8_t *>a.take(verified_terms, "verified_terms", 1, &items, False)
        if verified_pages is not None:
            flags = <const uint8_t *>a.take(verified_pages, "verified_pages", 1, NULL, False)
        for i in range(3):
            s.pages[i].first, s.pages[i].head = pages[i]
            s.pages[i].verified = flags + s.pages[i].first if flags else NULL
        if s.terms < 0 or f.documents < 1:
            raise ValueError("the arrays do not fit together")
        f.documents -= 1
        f.vocabulary = vocabulary_size


def match(Shard shard not None, ids, weights, counted, int64_t required, int64_t k, int64_t dk, float floor,
          float scan_share, allowed, double deadline, marks):
    cdef Arrays a = Arrays(5)
    cdef int64_t documents = shard.arrays.forward.documents, i
    cdef Query query
    cdef Found found
    cdef int state
    memset(&query, 0, sizeof(query))
    query.required, query.dk, query.k, query.terms = required, dk, min(k, documents), -1
    query.floor, query.scan_share, query.deadline = floor, scan_share, deadline
    query.ids = <const int32_t *>a.take(ids, "ids", 4, &query.terms, False)
    query.weights = <const float *>a.take(weights, "weights", 4, &query.terms, False)
    query.counted = <const uint8_t *>a.take(counted, "counted", 1, &query.terms, False)
    if allowed is not None:
        query.allowed = <const uint8_t *>a.take(allowed, "allowed", 1, &documents, False)
    if marks is not None:
        query.marks = <uint8_t *>a.take(marks, "marks", 1, &documents, True)
    if not 1 <= required <= UINT16_MAX + 1 or k < 0 or dk < 0 or query.terms > UINT16_MAX:
        raise ValueError("required, k, dk, or the number of terms is not possible")
    with nogil:
        state = match_shard(&shard.arrays, &query, &found)
    if state == NO_MEMORY:
        raise MemoryError
    if state == UNVERIFIED:
        return state, found.matched, found.postings, [found.unverified[i].document for i in range(found.number)], [], []
    if state < 0:
        found.number = 0
    return (
        state, found.matched, found.postings, [found.hits[i].document for i in range(found.number)],
        [found.hits[i].score for i in range(found.number)], [found.hits[i].count for i in range(found.number)],
    )


def impacts(Shard shard not None, int64_t term, documents, found):
    cdef Arrays a = Arrays(2)
    cdef int64_t count = -1, i
    cdef int impact
    places = <const int64_t *>a.take(documents, "documents", 8, &count, False)
    written = <uint8_t *>a.take(found, "impacts", 1, &count, True)
    for i in range(count):
        impact = find_impact(&shard.arrays, term, places[i])
        if impact < 0:
            return DAMAGED
        written[i] = <uint8_t>impact
    return DONE


def score(offsets, terms, impacts, documents, int64_t dk, ids, weights, int64_t vocabulary_size, scores, counts):
    cdef Arrays a = Arrays(8)
    cdef Forward f
    cdef Query query
    cdef int64_t count = -1
    cdef int state
    memset(&query, 0, sizeof(query))
    f.documents = f.items = query.terms = -1
    f.wide = memoryview(terms).itemsize == 4
    f.offsets = <const uint32_t *>a.take(offsets, "offsets", 4, &f.documents, False)
    f.terms = a.take(terms, "terms", 4 if f.wide else 2, &f.items, False)
    f.impacts = <const uint8_t *>a.take(impacts, "impacts", 1, &f.items, False)
    places = <const int64_t *>a.take(documents, "documents", 8, &count, False)
    query.ids = <const int32_t *>a.take(ids, "ids", 4, &query.terms, False)
    query.weights = <const float *>a.take(weights, "weights", 4, &query.terms, False)
    found = <float *>a.take(scores, "scores", 4, &count, True)
    shared = <uint16_t *>a.take(counts, "counts", 2, &count, True)
    if f.documents < 1 or vocabulary_size < 0 or dk < 0:
        raise ValueError("offsets, dk or the size of the vocabulary are not possible")
    f.documents -= 1
    f.vocabulary, query.dk = vocabulary_size, dk
    with nogil:
        state = score_documents(&f, places, count, &query, found, shared)
    if state == NO_MEMORY:
        raise MemoryError
    return state


def workspace_bytes():
    return c_workspace_bytes()


def choose_instructions(str name=None):
    cdef bytes encoded = None if name is None else name.encode()
    cdef const char *chosen = c_choose_instructions(NULL if encoded is None else PyBytes_AsString(encoded))
    return None if chosen == NULL else chosen.decode()


cdef class Version:
    cdef Members version
    cdef tuple members
    cdef Arrays held

    def __cinit__(self, tuple members, int64_t batch):
        cdef int64_t i
        self.members = members  # keeps the shards alive
        self.held = Arrays(sum([2 + 2 * len(member[3]) for member in members]))
        self.version.members = <Member *>calloc(len(members) + 1, sizeof(Member))
        if not self.version.members:
            raise MemoryError
        self.version.count = len(members)
        for i in range(self.version.count):
            self.version.members[i].batch = max(batch, 1)
            self.take_member(members[i], &self.version.members[i])

    def __dealloc__(self):
        for i in range(self.version.count):
            free(<void *>self.version.members[i].names)
        free(self.version.members)

    cdef int take_member(self, tuple given, Member *member) except -1:
        cdef Shard shard
        cdef list batches
        cdef Names *names
        shard, member.number, alive, batches, verified = given
        if shard is None:
            raise TypeError("a member has no shard")
        member.shard, member.batches = &shard.arrays, len(batches)
        member.names = names = <Names *>calloc(len(batches) + 1, sizeof(Names))
        if not names:
            raise MemoryError
        if alive is not None:
            member.alive = <const uint8_t *>self.held.take_bytes(alive, shard.arrays.forward.documents, NULL)
        if verified is not None:
            member.verified = <const uint8_t *>self.held.take_bytes(verified, member.batches, NULL)
        for i, (documents, offsets, text) in enumerate(batches):
            names[i].documents = documents
            names[i].offsets = <const int64_t *>self.held.take_bytes(offsets, 8 * (names[i].documents + 1), NULL)
            names[i].text = <const char *>self.held.take_bytes(text, 0, &names[i].size)
        return 0


cdef struct Term:
    float weight
    int32_t id
    PyObject *name  # borrowed


cdef int heavier_first(const void *one, const void *other) noexcept nogil:
    cdef const Term *a = <const Term *>one
    cdef const Term *b = <const Term *>other
    if a.weight != b.weight:
        return -1 if a.weight > b.weight else 1
    if a.id != b.id:
        return 1 if a.id > b.id else -1
    return PyUnicode_Compare(a.name, b.name) if a.name and b.name else 0


cdef int smaller_first(const void *one, const void *other) noexcept nogil:
    cdef int32_t a = (<const Term *>one).id
    cdef int32_t b = (<const Term *>other).id
    return (a > b) - (a < b)


cdef bint sort_terms(Term *terms, int64_t count) noexcept nogil:
    """Sort terms, the heaviest first; returns whether they are distinct."""
    cdef int64_t i
    qsort(terms, count, sizeof(Term), smaller_first)
    for i in range(1, count):
        if terms[i].id == terms[i - 1].id and terms[i].id >= 0:
            return False
    qsort(terms, count, sizeof(Term), heavier_first)
    return True


cdef bint read_term(term, weight, dict ids, list names, Term *read) except -1:
    """Read one item of a vector; returns whether it can be judged without Python code."""
    cdef double value
    if type(weight) is not float:
        return False
    value = weight
    if not 0 <= value <= FLT_MAX:
        return False
    read.weight, read.id, read.name = <float>value, -1, <PyObject *>term
    if type(term) is str:
        place = ids.get(term)
        if place is None:
            return True
    elif type(term) is int:
        place = term
    else:
        return False
    if not 0 <= place < len(names):
        return False
    read.id = place
    read.name = <PyObject *>names[read.id]
    return True


def read_vector(vector, dict ids not None, list names not None):
    cdef PyObject *term
    cdef PyObject *weight
    cdef Py_ssize_t place = 0, kept = 0, size, i
    cdef Term *read
    if type(vector) is not dict:
        return None
    size = len(<dict>vector)
    if size > UINT16_MAX:
        return None
    read = <Term *>malloc((size + 1) * sizeof(Term))
    if not read:
        raise MemoryError
    try:
        while kept < size and PyDict_Next(vector, &place, &term, &weight):
            if not read_term(<object>term, <object>weight, ids, names, &read[kept]):
                return None
            kept += 1
        if not sort_terms(read, kept):
            return None
        while kept and not read[kept - 1].weight > 0:
            kept -= 1
        id_bytes, weight_bytes = PyBytes_FromStringAndSize(NULL, 4 * kept), PyBytes_FromStringAndSize(NULL, 4 * kept)
        for i in range(kept):
            memcpy(PyBytes_AsString(id_bytes) + 4 * i, &read[i].id, 4)
            memcpy(PyBytes_AsString(weight_bytes) + 4 * i, &read[i].weight, 4)
        return id_bytes, weight_bytes, tuple([<object>read[i].name for i in range(kept)])
    finally:
        free(read)


cdef tuple make_hits(const Merged *merged, int64_t skipped, type hit):
    """Make the hits of the rows from ``skipped`` on: tuples of a subclass, which copies the items of ``plain``."""
    cdef tuple given = (tuple([None, None, None, {}, None]),)
    cdef PyObject *plain = PyTuple_GetItem(given, 0)
    cdef const Row *row
    cdef int64_t i
    hits = PyTuple_New(max(merged.number - skipped, 0))
    for i in range(skipped, merged.number):
        row = &merged.rows[i]
        PyTuple_SetItem(plain, 0, new_reference(PyUnicode_DecodeUTF8(row.name, row.length, NULL)))
        PyTuple_SetItem(plain, 1, new_reference(<double>row.hit.score))
        PyTuple_SetItem(plain, 2, new_reference(row.hit.count))
        made = make_tuple(<PyTypeObject *>hit, <PyObject *>given, NULL)
        PyTuple_SetItem(<PyObject *>hits, i - skipped, new_reference(made))
    return hits


cdef tuple make_terms(tuple terms, const float *weights, type query_term):
    cdef Py_ssize_t i
    cdef list made = []
    for i in range(len(terms)):
        given = ((terms[i], <double>weights[i], "terms"),)
        made.append(make_tuple(<PyTypeObject *>query_term, <PyObject *>given, NULL))
    return tuple(made)


cdef list unverified(const Merged *merged):
    """Return the documents that must be verified before a search can end."""
    cdef const Found *found = &merged.found
    cdef int64_t i
    if found.unverified:
        return [found.unverified[i].document for i in range(found.number)]
    return [found.hits[i].document for i in range(found.number)]  # the ids of hits, whose vectors were verified


cdef bint scale_query(Query *query, const int32_t *ids, const float *weights, int64_t terms, double step,
                      double largest, int32_t *known, float *scaled) noexcept nogil:
    """Prepare a query over known terms, whose weights are scaled; returns whether a score fits."""
    cdef double total = 0
    cdef int64_t i
    query.ids, query.weights, query.terms = known, scaled, 0
    for i in range(terms):
        total += weights[i]
        known[query.terms], scaled[query.terms] = ids[i], weights[i] * <float>step
        query.terms += ids[i] >= 0
    if query.required > query.terms + 1:
        query.required = query.terms + 1  # no document shares more
    return total * step * 255 <= largest


def search(Version version not None, ids, weights, tuple terms not None, int64_t required, int64_t k, int64_t skipped,
           int64_t dk, float floor, float scan_share, double step, double largest, double deadline,
           type hit not None, type query_term not None):
    cdef Arrays a = Arrays(2)
    cdef int64_t count = len(terms)
    cdef int state = INVALID
    cdef Query query
    cdef Merged merged
    if required < 1 or k < 0 or dk < 0 or skipped < 0 or count > UINT16_MAX:
        raise ValueError("required, k, skipped, dk, or the number of terms is not possible")
    given_ids = <const int32_t *>a.take(ids, "ids", 4, &count, False)
    given_weights = <const float *>a.take(weights, "weights", 4, &count, False)
    memset(&query, 0, sizeof(query))
    memset(&merged, 0, sizeof(merged))
    query.required, query.k, query.dk = required, k, dk
    query.floor, query.scan_share, query.deadline = floor, scan_share, deadline
    known = <int32_t *>malloc((count + 1) * (sizeof(int32_t) + sizeof(float)))
    if not known:
        raise MemoryError
    try:
        if scale_query(&query, given_ids, given_weights, count, step, largest, known, <float *>(known + count + 1)):
            with nogil:
                state = search_version(&version.version, &query, NULL, True, &merged)
        if state == NO_MEMORY:
            raise MemoryError
        made = make_terms(terms, given_weights, query_term)
        if state == DONE or state == PARTIAL:
            return state, merged.matched, make_hits(&merged, skipped, hit), made
        number = 0 if state == INVALID else version.version.members[merged.failed].number
        return state, number, unverified(&merged) if state == UNVERIFIED else None, made
    finally:
        free(merged.rows)
        free(known)


cdef struct Batch:  # many queries, as arrays
    const int64_t *offsets
    const int32_t *ids
    const float *weights
    const int64_t *required
    int64_t queries, vocabulary
    double step, largest
    const int64_t *starts
    const uint8_t **allowed
    int64_t *documents
    float *scores
    uint16_t *counts
    int64_t *numbers


cdef int search_one(const Members *version, const Batch *batch, Query query, int64_t number, Term *terms,
                    int32_t *ids, float *weights, int32_t *known, float *scaled, Merged *merged) noexcept nogil:
    cdef int64_t at, kept = 0
    cdef float weight
    cdef int state
    merged.failed, batch.numbers[number] = 0, 0
    for at in range(batch.offsets[number], batch.offsets[number + 1]):
        weight = batch.weights[at]
        if not isfinite(weight) or weight < 0 or batch.ids[at] < 0 or batch.ids[at] >= batch.vocabulary:
            return INVALID
        terms[kept].weight, terms[kept].id, terms[kept].name = weight, batch.ids[at], NULL
        kept += weight > 0
    if not sort_terms(terms, kept):
        return INVALID
    for at in range(kept):
        ids[at], weights[at] = terms[at].id, terms[at].weight
    query.required = batch.required[kept]
    if not scale_query(&query, ids, weights, kept, batch.step, batch.largest, known, scaled):
        return INVALID
    state = search_version(version, &query, batch.allowed, False, merged)
    if state != DONE and state != PARTIAL:
        return state
    for at in range(merged.number):
        batch.documents[number * query.k + at] = batch.starts[merged.rows[at].member] + merged.rows[at].hit.document
        batch.scores[number * query.k + at] = merged.rows[at].hit.score
        batch.counts[number * query.k + at] = merged.rows[at].hit.count
    batch.numbers[number] = merged.number
    return state


cdef int search_all(const Members *version, const Batch *batch, const Query *query, int64_t first, Merged *merged,
                    int64_t *failed) noexcept nogil:
    """Search from query ``first`` on; returns the worst state, and the query that ended the call."""
    cdef int64_t longest = 1, i
    cdef int worst = DONE, state
    for i in range(batch.queries):
        longest = max(longest, batch.offsets[i + 1] - batch.offsets[i])
    terms = <Term *>malloc(longest * sizeof(Term))
    ids = <int32_t *>malloc((2 * longest + 1) * sizeof(int32_t))
    weights = <float *>malloc((2 * longest + 1) * sizeof(float))
    if not terms or not ids or not weights:
        worst = NO_MEMORY
    for i in range(first, batch.queries):
        if worst < 0 or worst == UNVERIFIED:
            break
        free(merged.rows)
        merged.rows = NULL
        state = search_one(version, batch, query[0], i, terms, ids, weights, ids + longest, weights + longest, merged)
        failed[0] = i
        if state != DONE:
            worst = state
    free(terms)
    free(ids)
    free(weights)
    return worst


def search_batch(Version version not None, offsets, ids, weights, required, int64_t first, int64_t k, int64_t dk,
                 int64_t vocabulary_size, float floor, float scan_share, double step, double largest, double deadline,
                 tuple masks, numbers, documents, scores, counts, starts):
    cdef Arrays a = Arrays(9 + (0 if masks is None else len(masks)))
    cdef Batch batch
    cdef Query query
    cdef Merged merged
    cdef int64_t terms = -1, sizes = -1, members = version.version.count, failed = 0, hits, i, size
    cdef int state
    if first < 0 or k < 0 or dk < 0 or vocabulary_size < 0:
        raise ValueError("first, k, dk and the size of the vocabulary must be 0 or more")
    memset(&batch, 0, sizeof(batch))
    memset(&query, 0, sizeof(query))
    memset(&merged, 0, sizeof(merged))
    query.k, query.dk, query.floor, query.scan_share, query.deadline = k, dk, floor, scan_share, deadline
    batch.vocabulary, batch.step, batch.largest, batch.queries = vocabulary_size, step, largest, -1
    batch.numbers = <int64_t *>a.take(numbers, "numbers", 8, &batch.queries, True)
    hits = batch.queries * k
    batch.documents = <int64_t *>a.take(documents, "documents", 8, &hits, True)
    batch.scores = <float *>a.take(scores, "scores", 4, &hits, True)
    batch.counts = <uint16_t *>a.take(counts, "counts", 2, &hits, True)
    hits = batch.queries + 1
    batch.offsets = <const int64_t *>a.take(offsets, "offsets", 8, &hits, False)
    batch.ids = <const int32_t *>a.take(ids, "ids", 4, &terms, False)
    batch.weights = <const float *>a.take(weights, "weights", 4, &terms, False)
    batch.required = <const int64_t *>a.take(required, "required", 8, &sizes, False)
    batch.starts = <const int64_t *>a.take(starts, "starts", 8, &members, False)
    for i in range(batch.queries):
        size = batch.offsets[i + 1] - batch.offsets[i]
        if batch.offsets[i] < 0 or not 0 <= size < sizes or size > UINT16_MAX or batch.offsets[i + 1] > terms:
            raise ValueError("the offsets do not fit the queries")
    try:
        if masks is not None:
            if len(masks) != members:
                raise ValueError(f"there are {len(masks)} masks for {members} shards")
            batch.allowed = <const uint8_t **>calloc(members + 1, sizeof(uint8_t *))
            if not batch.allowed:
                raise MemoryError
            for i in range(members):
                size = version.version.members[i].shard.forward.documents
                if masks[i] is not None:
                    batch.allowed[i] = <const uint8_t *>a.take(masks[i], "allowed", 1, &size, False)
        with nogil:
            state = search_all(&version.version, &batch, &query, first, &merged, &failed)
        if state == NO_MEMORY:
            raise MemoryError
        number = version.version.members[merged.failed].number if members else 0
        return state, failed, number, unverified(&merged) if state == UNVERIFIED else []
    finally:
        free(merged.rows)
        free(batch.allowed)
