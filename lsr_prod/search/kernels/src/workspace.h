/* Working memory of one thread: it grows to what its queries need, and shrinks when they need much less. */
#ifndef LSR_PROD_WORKSPACE_H
#define LSR_PROD_WORKSPACE_H

#include "kernels.h"

/* Where the next run of a query term begins. */
typedef struct {
    uint32_t run, last_run, posting, last_posting, id, last_id;
    uint16_t weight; /* of fixed point, 256 is 1 */
    uint8_t high;    /* 10th largest impact, 255 if there is none; 0 where all terms are scanned */
    bool counted;
} Cursor;

typedef struct {
    /* One cell per local id that the arrays can hold; zeros before and after a query. */
    uint32_t cells[1 << 16] __attribute__((aligned(64)));
    void *arrays[5];
    int64_t sizes[5], most[5]; /* items, and those that the queries since the last look needed */
    int64_t calls;
    int64_t read_ahead; /* coming times that the pages of candidates are read from the disk all at once */
    /* The arrays by name. */
    Cursor *cursors;
    Candidate *candidates;
    Hit *hits;       /* heap of the k best scored documents, the worst one first */
    uint16_t *slots; /* place + 1 of each term in the query; zeros before and after a call */
    uint8_t *found;  /* impact of each query term in one document, from place 1 on */
} Workspace;

/* Return the memory of this thread with room for a query; NULL: there is not enough memory. */
Workspace *workspace_of_thread(int64_t terms, int64_t candidates, int64_t k, int64_t vocabulary);

#endif
