/* Kernels of the index build: postings. Arguments are arrays that Python has checked. */
#include "build.h"

#include <stdlib.h>

INLINE int64_t term_at(const Rows *rows, int64_t at) {
    return rows->wide ? ((const int32_t *)rows->terms)[at] : (int64_t)((const uint16_t *)rows->terms)[at];
}

/* The end of the terms of a document that become postings. */
INLINE int64_t end_of(const Rows *rows, int64_t document, int64_t dk) {
    int64_t first = rows->offsets[document], last = rows->offsets[document + 1];
    return last - first > dk ? first + dk : last;
}

INLINE int64_t id_items(int64_t count) {
    return count > DENSE ? DENSE : count;
}

/* The run that a term is in while documents are read in order. */
typedef struct {
    int64_t window, count;
} Open;

/* Count the runs of every term, its postings, and the items of its ids. */
int count_runs(const Rows *rows, int64_t dk, int64_t terms, int64_t *runs, int64_t *postings, int64_t *ids) {
    Open *open = calloc((size_t)(terms ? terms : 1), sizeof *open);
    if (!open) return NO_MEMORY;
    for (int64_t document = 0; document < rows->count; document++) {
        int64_t window = document >> WINDOW_BITS, last = end_of(rows, document, dk);
        for (int64_t at = rows->offsets[document]; at < last; at++) {
            int64_t term = term_at(rows, at);
            if (!open[term].count || open[term].window != window) {
                ids[term] += id_items(open[term].count);
                runs[term]++;
                open[term] = (Open){window, 0};
            }
            open[term].count++;
            postings[term]++;
        }
    }
    for (int64_t term = 0; term < terms; term++) ids[term] += id_items(open[term].count);
    free(open);
    return DONE;
}

/* Write the window and the size of every run. */
static void fill_runs(const Rows *rows, int64_t dk, int64_t *next_run, Open *open, uint16_t *windows,
                      uint16_t *counts) {
    for (int64_t document = 0; document < rows->count; document++) {
        int64_t window = document >> WINDOW_BITS, last = end_of(rows, document, dk);
        for (int64_t at = rows->offsets[document]; at < last; at++) {
            int64_t term = term_at(rows, at);
            if (!open[term].count || open[term].window != window) {
                windows[next_run[term]] = (uint16_t)window;
                counts[next_run[term]++] = 0;
                open[term] = (Open){window, 1};
            } else {
                counts[next_run[term] - 1]++;
            }
        }
    }
}

/* Write the postings of every term, in the order of the documents; ids and bitmaps begin as zeros. */
int fill_postings(const Rows *rows, int64_t dk, int64_t terms, const int64_t *runs, int64_t *next_posting,
                  int64_t *next_id, uint16_t *run_windows, uint16_t *run_counts, uint16_t *ids, uint8_t *impacts) {
    Open *open = calloc((size_t)(terms ? terms : 1), sizeof *open); /* count: postings that the run still lacks */
    int64_t *next_run = malloc((size_t)(terms ? terms : 1) * sizeof *next_run);
    if (!open || !next_run) {
        free(open), free(next_run);
        return NO_MEMORY;
    }
    memcpy(next_run, runs, (size_t)terms * sizeof *next_run);
    fill_runs(rows, dk, next_run, open, run_windows, run_counts);
    memcpy(next_run, runs, (size_t)terms * sizeof *next_run);
    memset(open, 0, (size_t)terms * sizeof *open);
    for (int64_t document = 0; document < rows->count; document++) {
        int64_t local = document & (WINDOW - 1), last = end_of(rows, document, dk);
        for (int64_t at = rows->offsets[document]; at < last; at++) {
            int64_t term = term_at(rows, at), count;
            if (!open[term].count) open[term].count = run_counts[next_run[term]++] + (int64_t)1;
            count = run_counts[next_run[term] - 1] + (int64_t)1;
            open[term].count--;
            if (count > DENSE) {
                ids[next_id[term] + (local >> 4)] |= (uint16_t)(1 << (local & 15));
                if (!open[term].count) next_id[term] += DENSE;
            } else {
                ids[next_id[term]++] = (uint16_t)local;
            }
            impacts[next_posting[term]++] = rows->impacts[at];
        }
    }
    free(open), free(next_run);
    return DONE;
}

/* Find the 10th and the 100th largest impact of every term; 0 if it has fewer. */
void rank_impacts(const uint32_t *term_postings, int64_t terms, const uint8_t *impacts, uint8_t *tenths,
                  uint8_t *hundredths) {
    for (int64_t term = 0; term < terms; term++) {
        int64_t first = term_postings[term], last = term_postings[term + 1], counts[256] = {0}, above = 0;
        if (last - first < 10) continue;
        for (int64_t at = first; at < last; at++) counts[impacts[at]]++;
        for (int impact = 255; impact > 0; impact--) {
            above += counts[impact];
            if (above >= 10 && !tenths[term]) tenths[term] = (uint8_t)impact;
            if (above >= 100) {
                hundredths[term] = (uint8_t)impact;
                break;
            }
        }
    }
}
