/* Many queries against one shard, as arrays. */
#ifndef LSR_PROD_BATCH_H
#define LSR_PROD_BATCH_H

#include "kernels.h"

enum { INVALID = -3 }; /* a weight, an id or the sum of weights is outside its range, or a term is given twice */

typedef struct {
    const int64_t *offsets; /* queries + 1 */
    const int32_t *ids;
    const float *weights;
    const int64_t *required; /* by number of terms */
    const float *floors;     /* lowest score of a hit, of each query */
    const uint8_t *allowed;  /* of each document; NULL: all */
    int64_t queries, vocabulary, k;
    float step;     /* score of one impact unit for a weight of 1 */
    double largest; /* sum of scores that still fits */
    double deadline;
    int64_t *documents; /* out: queries x k */
    float *scores;      /* out: queries x k */
    uint16_t *counts;   /* out: queries x k */
    int64_t *numbers;   /* out: hits of each query */
} Batch;

/* Returns the worst state; `failed` is the query that ended the call. */
int match_batch(const Postings *postings, const Batch *batch, int64_t *failed);

#endif
