#include "workspace.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_PLACES (WINDOW * 256) /* of blocks whose local ids are one byte */
#define LOOK_EVERY 1024          /* queries */
#define MUCH_MORE 4

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_key;

static void release(void *pointer) {
    Workspace *m = pointer;
    free(m->bounds), free(m->present), free(m->states);
    free(m->scores), free(m->counts), free(m->cursors);
    free(m->marks), free(m->hits), free(m->slots), free(m->found), free(m);
}

static void create_key(void) { has_key = pthread_key_create(&key, release) == 0; }

static Workspace *of_thread(void) {
    Workspace *memory;
    pthread_once(&once, create_key);
    if (!has_key) return NULL;
    memory = pthread_getspecific(key);
    if (!memory) {
        memory = calloc(1, sizeof *memory);
        if (memory && pthread_setspecific(key, memory)) {
            free(memory);
            memory = NULL;
        }
    }
    return memory;
}

/* Replace an array by a new one of `items` items, zeros; returns false if there is no memory for it. */
static bool renew(void **array, int64_t items, size_t size) {
    free(*array);
    *array = calloc((size_t)(items ? items : 1), size);
    return *array != NULL;
}
#define RENEW(array, items) renew((void **)&(array), items, sizeof *(array))

static bool fit_blocks(Workspace *m, int64_t blocks) {
    m->blocks = 0;
    if (!RENEW(m->bounds, blocks) || !RENEW(m->present, blocks) || !RENEW(m->states, blocks)) return false;
    m->blocks = blocks;
    return true;
}

static bool fit_places(Workspace *m, int64_t places) {
    m->places = 0;
    if (!RENEW(m->scores, places) || !RENEW(m->counts, places)) return false;
    m->places = places;
    return true;
}

static bool fit_terms(Workspace *m, int64_t terms) {
    m->terms = 0;
    if (!RENEW(m->cursors, terms)) return false;
    m->terms = terms;
    return true;
}

static bool fit_marks(Workspace *m, int64_t marks) {
    m->marked = 0;
    if (!RENEW(m->marks, marks)) return false;
    m->marked = marks;
    return true;
}

static bool fit_hits(Workspace *m, int64_t k) {
    m->k = 0;
    if (!RENEW(m->hits, k)) return false;
    m->k = k;
    return true;
}

static int64_t larger(int64_t one, int64_t other) { return one > other ? one : other; }

/* After many queries, return memory that none of them needed. */
static bool shrink(Workspace *m) {
    bool whole = true;
    if (m->blocks > MUCH_MORE * m->most_blocks) whole &= fit_blocks(m, m->most_blocks);
    if (m->places > MUCH_MORE * m->most_places) whole &= fit_places(m, m->most_places);
    if (m->terms > MUCH_MORE * m->most_terms) whole &= fit_terms(m, m->most_terms);
    if (m->marked > MUCH_MORE * m->most_marks) whole &= fit_marks(m, m->most_marks);
    if (m->k > MUCH_MORE * m->most_k) whole &= fit_hits(m, m->most_k);
    m->calls = m->most_blocks = m->most_places = m->most_terms = m->most_marks = m->most_k = 0;
    return whole;
}

Workspace *workspace_of_thread(const Postings *postings, const Query *query, int64_t marked) {
    Workspace *m = of_thread();
    int64_t places = postings->wide ? 1 << 16 : WINDOW_PLACES;
    bool whole = true;
    if (!m) return NULL;
    m->most_blocks = larger(m->most_blocks, postings->blocks);
    m->most_places = larger(m->most_places, places);
    m->most_terms = larger(m->most_terms, query->terms);
    m->most_marks = larger(m->most_marks, marked);
    m->most_k = larger(m->most_k, query->k);
    if (++m->calls >= LOOK_EVERY) whole &= shrink(m);
    if (m->blocks < postings->blocks) whole &= fit_blocks(m, postings->blocks);
    if (m->places < places) whole &= fit_places(m, places);
    if (!m->cursors || m->terms < query->terms) whole &= fit_terms(m, query->terms);
    if (!m->marks || m->marked < marked) whole &= fit_marks(m, marked);
    if (!m->hits || m->k < query->k) whole &= fit_hits(m, query->k);
    return whole ? m : NULL;
}

Workspace *forward_workspace(int64_t vocabulary, int64_t terms) {
    Workspace *m = of_thread();
    if (!m) return NULL;
    if (m->vocabulary < vocabulary) {
        m->vocabulary = 0;
        if (!RENEW(m->slots, vocabulary)) return NULL;
        m->vocabulary = vocabulary;
    }
    if (!m->found || m->found_terms < terms) {
        m->found_terms = 0;
        if (!RENEW(m->found, terms + 1)) return NULL;
        m->found_terms = terms;
    }
    return m;
}

void clear_workspace(Workspace *m) {
    memset(m->scores, 0, (size_t)m->places * sizeof *m->scores);
    memset(m->counts, 0, (size_t)m->places * sizeof *m->counts);
}

int64_t workspace_bytes(void) {
    Workspace *m = of_thread();
    if (!m) return 0;
    return (int64_t)sizeof *m + m->blocks * 7 + m->places * 6 + (m->terms + m->marked) * (int64_t)sizeof(Cursor) +
           m->k * (int64_t)sizeof(Hit) + m->vocabulary * 4 + m->found_terms * 4;
}
