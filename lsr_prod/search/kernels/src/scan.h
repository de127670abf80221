/* One query while it is matched: what match.c, window.c and score.c share. */
#ifndef LSR_PROD_SCAN_H
#define LSR_PROD_SCAN_H

#include <time.h>

#include "workspace.h"

typedef struct {
    const Shard *shard;
    const Query *query;
    Workspace *memory;
    Found *found;
    bool wide;      /* cells are uint32, the number of counted terms above the sum; else uint16, only the sum */
    double scale;   /* sum of a score of 1 */
    int64_t scanned; /* terms that are scanned: the first cursors */
    int64_t under;  /* a score is at most this much above the sum of its document */
    int64_t over;   /* and at most this much below it */
    int64_t least;  /* lowest sum of a candidate, 0 to 65535; no document has a sum of 65535 */
    int64_t kept;   /* sum below which a candidate need not be scored; with one term, below `least` */
    int64_t listed; /* candidates */
    int64_t cut;    /* number of them at which the list is cut */
    int64_t room;   /* for them */
    int64_t filled; /* in the heap of hits */
    int state;
} Scan;

#define SUMS 65534         /* largest sum */
#define MORE_BEFORE_CUT 48 /* candidates between two cuts of the list, in addition to k / 2 */

INLINE double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Return the lowest sum of a document whose score is at least `score`. */
INLINE int64_t least_sum(const Scan *scan, float score) {
    double least = (double)score * scan->scale;
    return (least > SUMS ? SUMS : (int64_t)least) - scan->under;
}

/* Functions of one instruction set on the cells of a window. */
typedef struct {
    const char *name;
    /* Return whether all ids are below `size`. */
    bool (*are_below)(const uint16_t *ids, int64_t count, int64_t size);
    /* Return the number of bits that are set in the first `words` words of 64 bits. */
    int64_t (*count)(const void *bitmap, int64_t words);
    /* Add a run: `weight` times each impact, and `unit` to each wide cell. */
    void (*add_ids)(uint16_t *cells, const uint16_t *ids, const uint8_t *impacts, int64_t count, uint16_t weight);
    void (*add_ids_wide)(uint32_t *cells, const uint16_t *ids, const uint8_t *impacts, int64_t count, uint16_t weight,
                         uint32_t unit);
    /* The same for a bitmap of `words` words of 64 bits; returns false if it has not `count` bits. */
    bool (*add_bits)(uint16_t *cells, const void *bitmap, int64_t words, const uint8_t *impacts, int64_t count,
                     uint16_t weight);
    bool (*add_bits_wide)(uint32_t *cells, const void *bitmap, int64_t words, const uint8_t *impacts, int64_t count,
                          uint16_t weight, uint32_t unit);
    /* Count the matches among the first `size` cells, offer candidates, and store zeros. */
    void (*sweep)(Scan *scan, int64_t first, int64_t size);
    void (*sweep_wide)(Scan *scan, int64_t first, int64_t size);
} Instructions;

extern const Instructions *instructions; /* chosen for this process */

/* Offer the documents `first + i` of a window, whose bit i is set; `sums` are their cells. */
void offer_candidates(Scan *scan, int64_t first, uint64_t bits);

/* Mark the matches. */
void mark_matches(Scan *scan, int64_t first, uint64_t bits);

/* Score the candidates, keep the best ones as hits, and empty the list; returns the state. */
int score_candidates(Scan *scan);

/* Order the hits, the best one first. */
void sort_hits(Scan *scan);

#endif
