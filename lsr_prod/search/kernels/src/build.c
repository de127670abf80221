/* Kernels of the index build: postings and their compressed form. Arguments are arrays that Python has checked. */
#include "build.h"

#include <stdlib.h>
#include <string.h>

INLINE int64_t term_at(const void *terms, bool wide, int64_t at) {
    return wide ? ((const int32_t *)terms)[at] : (int64_t)((const uint16_t *)terms)[at];
}

/* Count the runs and postings of every term. */
int count_runs(const Rows *rows, int64_t dk, int64_t block_size, int64_t terms, int64_t *runs, int64_t *postings) {
    int64_t *last_block = malloc((size_t)(terms ? terms : 1) * sizeof *last_block);
    if (!last_block) return NO_MEMORY;
    for (int64_t term = 0; term < terms; term++) last_block[term] = -1;
    for (int64_t document = 0; document < rows->count; document++) {
        int64_t block = document / block_size, first = rows->offsets[document], last = rows->offsets[document + 1];
        if (last - first > dk) last = first + dk;
        for (int64_t at = first; at < last; at++) {
            int64_t term = term_at(rows->terms, rows->wide, at);
            postings[term]++;
            if (last_block[term] != block) {
                runs[term] += (block - last_block[term]) / NO_RUN + 1;
                last_block[term] = block;
            }
        }
    }
    free(last_block);
    return DONE;
}

/* Write the postings of every term, in the order of the documents. */
int fill_postings(const Rows *rows, int64_t dk, int64_t block_size, int64_t terms, int64_t *next_run,
                  int64_t *next_posting, uint8_t *gaps, void *run_counts, uint8_t *maxima, void *ids, bool wide_ids,
                  uint8_t *impacts) {
    int64_t *last_block = malloc((size_t)(terms ? terms : 1) * sizeof *last_block);
    if (!last_block) return NO_MEMORY;
    for (int64_t term = 0; term < terms; term++) last_block[term] = -1;
    for (int64_t document = 0; document < rows->count; document++) {
        int64_t block = document / block_size, first = rows->offsets[document], last = rows->offsets[document + 1];
        int64_t local = document - block * block_size;
        if (last - first > dk) last = first + dk;
        for (int64_t at = first; at < last; at++) {
            int64_t term = term_at(rows->terms, rows->wide, at), run, place;
            if (last_block[term] != block) {
                int64_t gap = block - last_block[term];
                last_block[term] = block;
                for (; gap >= NO_RUN; gap -= NO_RUN) gaps[next_run[term]++] = NO_RUN;
                gaps[next_run[term]++] = (uint8_t)gap;
            } else if (wide_ids) {
                ((uint16_t *)run_counts)[next_run[term] - 1]++;
            } else {
                ((uint8_t *)run_counts)[next_run[term] - 1]++;
            }
            run = next_run[term] - 1;
            if (rows->impacts[at] > maxima[run]) maxima[run] = rows->impacts[at];
            place = next_posting[term]++;
            if (wide_ids)
                ((uint16_t *)ids)[place] = (uint16_t)local;
            else
                ((uint8_t *)ids)[place] = (uint8_t)local;
            impacts[place] = rows->impacts[at];
        }
    }
    free(last_block);
    return DONE;
}

/* Compute where the compressed ids and impacts of each term begin. */
void measure_compressed(const Runs *runs, int64_t *id_starts, int64_t *impact_starts) {
    for (int64_t term = 0; term < runs->terms; term++) {
        int64_t id_at = id_starts[term], impact_at = impact_starts[term];
        for (int64_t run = runs->term_runs[term]; run < (int64_t)runs->term_runs[term + 1]; run++) {
            int64_t count = (int64_t)runs->counts[run] + 1;
            if (runs->gaps[run] == NO_RUN) continue;
            id_at += count > BITMAP_ABOVE ? BITMAP_ABOVE : count;
            impact_at += count == 1 ? 0 : count;
        }
        id_starts[term + 1] = id_at;
        impact_starts[term + 1] = impact_at;
    }
}

/* Write long runs as bitmaps, and leave out the impact of runs of one posting. */
void compress_runs(const Runs *runs, const int64_t *term_postings, const uint8_t *ids, const uint8_t *impacts,
                   uint8_t *packed_ids, uint8_t *packed_impacts) {
    int64_t id_at = 0, impact_at = 0;
    for (int64_t term = 0; term < runs->terms; term++) {
        int64_t posting = term_postings[term];
        for (int64_t run = runs->term_runs[term]; run < (int64_t)runs->term_runs[term + 1]; run++) {
            int64_t count = (int64_t)runs->counts[run] + 1;
            if (runs->gaps[run] == NO_RUN) continue;
            if (count > BITMAP_ABOVE) {
                for (int64_t at = posting; at < posting + count; at++)
                    packed_ids[id_at + (ids[at] >> 3)] |= (uint8_t)(1 << (ids[at] & 7));
                id_at += BITMAP_ABOVE;
            } else {
                memcpy(packed_ids + id_at, ids + posting, (size_t)count);
                id_at += count;
            }
            if (count > 1) {
                memcpy(packed_impacts + impact_at, impacts + posting, (size_t)count);
                impact_at += count;
            }
            posting += count;
        }
    }
}
