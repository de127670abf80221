/* Kernels of the index build. */
#ifndef LSR_PROD_BUILD_H
#define LSR_PROD_BUILD_H

#include "kernels.h"

/* Vectors of documents, one after another. */
typedef struct {
    const int64_t *offsets; /* count + 1 */
    const void *terms;      /* uint16 or int32 */
    const uint8_t *impacts; /* NULL where only terms are read */
    int64_t count;
    bool wide;
} Rows;

/* Runs of a shard whose local ids are one byte. */
typedef struct {
    const uint32_t *term_runs; /* terms + 1 */
    const uint8_t *gaps, *counts;
    int64_t terms;
} Runs;

int count_runs(const Rows *rows, int64_t dk, int64_t block_size, int64_t terms, int64_t *runs, int64_t *postings);
int fill_postings(const Rows *rows, int64_t dk, int64_t block_size, int64_t terms, int64_t *next_run,
                  int64_t *next_posting, uint8_t *gaps, void *run_counts, uint8_t *maxima, void *ids, bool wide_ids,
                  uint8_t *impacts);
void measure_compressed(const Runs *runs, int64_t *id_starts, int64_t *impact_starts);
void compress_runs(const Runs *runs, const int64_t *term_postings, const uint8_t *ids, const uint8_t *impacts,
                   uint8_t *packed_ids, uint8_t *packed_impacts);
int bisect_sets(int64_t *places, const int64_t *bounds, const int64_t *cuts, int64_t first, int64_t last,
                const Rows *rows, int64_t vocabulary, const float *logs);

#endif
