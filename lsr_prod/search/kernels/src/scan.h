/* One query while it is matched: what bounds.c, scan.c and heap.c share. */
#ifndef LSR_PROD_SCAN_H
#define LSR_PROD_SCAN_H

#include <string.h>
#include <time.h>

#include "kernels.h"
#include "workspace.h"

typedef struct {
    const Postings *postings;
    const Query *query;
    Workspace *memory;
    Found *found;
    int64_t filled; /* hits in the heap */
    float least;    /* lowest score that can still be a hit */
    bool counting;  /* terms of a block must be counted; otherwise a bound above 0 says that one occurs */
    int64_t stride; /* every so many windows, the cursors at the start of one are kept as marks */
} Scan;

INLINE int32_t bits_of(float number) {
    int32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

INLINE bool is_late(const Query *query) {
    struct timespec now;
    if (query->deadline <= 0) return false;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec >= query->deadline;
}

INLINE int64_t count_of(const Postings *p, bool wide, int64_t run) {
    return (wide ? ((const uint16_t *)p->run_counts)[run] : ((const uint8_t *)p->run_counts)[run]) + (int64_t)1;
}

/* Blocks of a window. */
INLINE int64_t window_of(const Postings *p) { return p->wide ? 1 : WINDOW; }

/* Give every block a bound, set the marks, and check the runs of all terms; returns the state. */
int bound_blocks(Scan *scan);

/* Drop blocks that cannot hold a hit (state 0), mark the others 1; returns the bits of the largest bound, or DAMAGED. */
int64_t rank_blocks(Scan *scan, int64_t *ranked);

/* Mark the blocks of the highest bounds with 2; returns false if that does not promise a threshold. */
bool choose_best(Scan *scan, int32_t largest, int64_t ranked);

/* Scan the blocks whose state is `wanted`, in their order; returns the state. */
int scan_blocks(Scan *scan, uint8_t wanted);

/* Offer a document to the hits. */
void offer(Scan *scan, float score, int64_t document, uint16_t count);

/* Order the hits, the best one first. */
void sort_hits(Scan *scan);

#endif
