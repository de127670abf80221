/* Working memory of one thread: it grows to what its queries need, and shrinks when they need much less. */
#ifndef LSR_PROD_WORKSPACE_H
#define LSR_PROD_WORKSPACE_H

#include "kernels.h"

/* Where the next run of a term begins. */
typedef struct {
    int64_t run, last_run, block, id_at, impact_at;
} Cursor;

/* One run to be read. */
typedef struct {
    int64_t run, id_at, impact_at;
    int32_t block, count;
} Run;

#define WINDOW 128        /* blocks that are scanned together, if a local id is one byte */
#define TERMS_AT_ONCE 32  /* whose runs in a window are listed together */
#define MOST_MARKS 65536  /* cursors kept for the starts of windows */

typedef struct {
    Run runs[WINDOW * TERMS_AT_ONCE + 1];
    /* One array each of `blocks` items. */
    float *bounds;     /* upper bounds of the scores in each block */
    uint16_t *present; /* counted query terms that occur in each block */
    uint8_t *states;   /* 0: nothing to read; 1, 2: to be scanned */
    int64_t blocks;
    /* One item for each local id of each block of a window; zeros before and after a query. */
    float *scores;
    uint16_t *counts;
    int64_t places;
    Cursor *cursors; /* one per query term */
    int64_t terms;
    Cursor *marks; /* where windows begin: the terms of the first marked window, of the second one, ... */
    int64_t marked;
    Hit *hits;
    int64_t k;
    int32_t *slots; /* place + 1 of each term in the query; zeros before and after a call */
    int64_t vocabulary;
    float *found; /* impact of each query term in one document; one more than `found_terms` */
    int64_t found_terms;
    /* What the queries since the last look needed. */
    int64_t calls, most_blocks, most_places, most_terms, most_marks, most_k;
} Workspace;

/* Return the memory of this thread, large enough for a query with `marked` marks; NULL: there is not enough memory. */
Workspace *workspace_of_thread(const Postings *postings, const Query *query, int64_t marked);

/* Return it with room for a query of `terms` terms over the forward copy. */
Workspace *forward_workspace(int64_t vocabulary, int64_t terms);

/* Restore the zeros after a damaged shard. */
void clear_workspace(Workspace *memory);

#endif
