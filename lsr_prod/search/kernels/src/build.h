/* Kernels of the index build. */
#ifndef LSR_PROD_BUILD_H
#define LSR_PROD_BUILD_H

#include "kernels.h"

/* Vectors of documents, one after another. */
typedef struct {
    const uint32_t *offsets; /* count + 1 */
    const void *terms;       /* uint16 or int32 */
    const uint8_t *impacts;  /* NULL where only terms are read */
    int64_t count;
    bool wide;
} Rows;

int count_runs(const Rows *rows, int64_t dk, int64_t terms, int64_t *runs, int64_t *postings, int64_t *ids);
int fill_postings(const Rows *rows, int64_t dk, int64_t terms, const int64_t *runs, int64_t *next_posting,
                  int64_t *next_id, uint16_t *run_windows, uint16_t *run_counts, uint16_t *ids, uint8_t *impacts);
void rank_impacts(const uint32_t *term_postings, int64_t terms, const uint8_t *impacts, uint8_t *tenths,
                  uint8_t *hundredths);

#endif
