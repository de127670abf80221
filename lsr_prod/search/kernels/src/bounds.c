/* Upper bounds of the scores in each block, and which blocks are read. */
#include "scan.h"

#define LEVELS 512    /* of the choice by bounds: two octaves below the largest one */
#define LEVEL_BITS 15 /* bits of a float32 that one level spans */
#define INFINITY_BITS 0x7F800000
#define CHECKED_RUNS (1 << 15) /* runs between two looks at the clock */

/* What the runs of a term have in common. */
typedef struct {
    int64_t postings; /* of all runs, if no run is skipped */
    int64_t blocks;   /* sum of the gaps */
    bool skips;       /* NO_RUN occurs */
    bool repeats;     /* a gap is 0 */
} Summary;

INLINE Summary summarize(const Postings *p, bool wide, int64_t first, int64_t last) {
    int64_t postings = last - first, blocks = 0;
    uint8_t largest = 0, smallest = UINT8_MAX;
    for (int64_t run = first; run < last; run++) {
        uint8_t gap = p->run_gaps[run];
        largest = gap > largest ? gap : largest;
        smallest = gap < smallest ? gap : smallest;
        blocks += gap;
        postings += wide ? ((const uint16_t *)p->run_counts)[run] : ((const uint8_t *)p->run_counts)[run];
    }
    return (Summary){postings, blocks, largest == NO_RUN, smallest == 0};
}

/* Move a cursor over some runs, none of which is skipped; only their number of postings is read. */
INLINE void pass_runs(const Postings *p, bool wide, Cursor *c, int64_t run, int64_t block) {
    int64_t postings = summarize(p, wide, c->run, run).postings;
    *c = (Cursor){run, c->last_run, block, c->id_at + postings, c->impact_at + postings};
}

/* Add the bounds of a term none of whose runs is skipped, and keep where the marked windows begin; not compressed. */
INLINE void bound_dense(const Scan *scan, bool wide, bool present, int64_t number, Cursor c) {
    const Postings *p = scan->postings;
    const Workspace *m = scan->memory;
    int64_t terms = scan->query->terms, apart = scan->stride * window_of(p), start = 0, block = c.block;
    Cursor *mark = m->marks + number;
    float weight = scan->query->weights[number];
    uint16_t adds = scan->query->counted[number];
    for (int64_t run = c.run; run < c.last_run; run++) {
        int64_t before = block;
        block += p->run_gaps[run];
        if (start <= block) {
            pass_runs(p, wide, &c, run, before);
            for (; start <= block; start += apart, mark += terms) *mark = c;
        }
        m->bounds[block] += weight * (float)p->run_maxima[run];
        if (present) m->present[block] += adds;
    }
    pass_runs(p, wide, &c, c.last_run, block);
    for (; start < p->blocks; start += apart, mark += terms) *mark = c;
}

/* Add the bounds of any term; returns its state. */
INLINE int bound_any(const Scan *scan, bool wide, bool compressed, int64_t number, Cursor c, int64_t *postings) {
    const Postings *p = scan->postings;
    const Workspace *m = scan->memory;
    int64_t terms = scan->query->terms, apart = scan->stride * window_of(p), start = 0, before = -1;
    Cursor *mark = m->marks + number;
    for (; c.run < c.last_run; c.run++) {
        int64_t gap = p->run_gaps[c.run], block = c.block + gap, count;
        for (; start <= block && start < p->blocks; start += apart, mark += terms) *mark = c;
        c.block = block;
        if (gap == NO_RUN) continue;
        if (block <= before || block >= p->blocks) return DAMAGED;
        before = block;
        m->bounds[block] += scan->query->weights[number] * (float)p->run_maxima[c.run];
        m->present[block] += scan->query->counted[number];
        count = count_of(p, wide, c.run);
        *postings += count;
        c.id_at += compressed && count > BITMAP_ABOVE ? BITMAP_ABOVE : count;
        c.impact_at += compressed && count == 1 ? 0 : count;
    }
    for (; start < p->blocks; start += apart, mark += terms) *mark = c;
    if (c.id_at != p->term_ids[scan->query->ids[number] + 1]) return DAMAGED;
    return c.impact_at == p->term_impacts[scan->query->ids[number] + 1] ? DONE : DAMAGED;
}

/* Add the bounds of one term after its runs were checked; returns its state.
 *
 * A block with two runs of one term could exceed every limit of bounds and counts, and is damage. */
INLINE int bound_term(const Scan *scan, bool wide, bool compressed, int64_t number) {
    const Postings *p = scan->postings;
    int64_t term = scan->query->ids[number], postings = p->term_postings[term];
    Cursor c = {p->term_runs[term], p->term_runs[term + 1], -1, p->term_ids[term], p->term_impacts[term]};
    Summary all = summarize(p, wide, c.run, c.last_run);
    if (compressed || all.skips) {
        int state = bound_any(scan, wide, compressed, number, c, &postings);
        return state == DONE && postings != p->term_postings[term + 1] ? DAMAGED : state;
    }
    if (all.repeats || all.blocks > p->blocks || postings + all.postings != p->term_postings[term + 1]) return DAMAGED;
    if (c.id_at + all.postings != p->term_ids[term + 1]) return DAMAGED;
    if (c.impact_at + all.postings != p->term_impacts[term + 1]) return DAMAGED;
    if (scan->counting)
        bound_dense(scan, wide, true, number, c);
    else
        bound_dense(scan, wide, false, number, c);
    return DONE;
}

FOR_EVERY_CPU int bound_blocks(Scan *scan) {
    const Postings *p = scan->postings;
    const Query *query = scan->query;
    Workspace *m = scan->memory;
    int64_t since = 0;
    memset(m->bounds, 0, (size_t)p->blocks * sizeof *m->bounds);
    memset(m->present, 0, (size_t)p->blocks * sizeof *m->present);
    for (int64_t i = 0; i < query->terms; i++) {
        int64_t term = query->ids[i];
        int state;
        if (p->wide)
            state = bound_term(scan, true, false, i);
        else if (p->compressed)
            state = bound_term(scan, false, true, i);
        else
            state = bound_term(scan, false, false, i);
        if (state != DONE) return state;
        since += (int64_t)p->term_runs[term + 1] - p->term_runs[term];
        if (since >= CHECKED_RUNS) {
            since = 0;
            if (is_late(query)) return PARTIAL;
        }
    }
    return DONE;
}

FOR_EVERY_CPU int64_t rank_blocks(Scan *scan, int64_t *ranked) {
    const Query *query = scan->query;
    Workspace *m = scan->memory;
    float *bounds = m->bounds;
    const uint16_t *present = m->present;
    uint8_t *states = m->states;
    int64_t blocks = scan->postings->blocks;
    float floor = query->exhaustive ? 0 : query->floor;
    /* Bounds are summed in another order than scores; the slack exceeds the rounding errors of both. */
    float slack = 1.0f + (float)(query->terms + 1) * 2.4e-7f;
    uint16_t required = query->required > UINT16_MAX ? UINT16_MAX : (uint16_t)query->required;
    int32_t largest = 0;
    int64_t total = 0;
    for (int64_t block = 0; block < blocks; block++) bounds[block] *= slack;
    for (int64_t block = 0; block < blocks; block++) {
        int32_t bits = bits_of(bounds[block]);
        largest = bits > largest ? bits : largest;
    }
    if (largest >= INFINITY_BITS) return DAMAGED;
    for (int64_t block = 0; block < blocks; block++) {
        bool enough = scan->counting ? present[block] >= required : bounds[block] > 0;
        states[block] = enough && bounds[block] >= floor;
        total += states[block];
    }
    *ranked = total;
    return largest;
}

bool choose_best(Scan *scan, int32_t largest, int64_t ranked) {
    Workspace *m = scan->memory;
    int64_t blocks = scan->postings->blocks, sizes[LEVELS] = {0}, chosen = 0;
    int64_t k = scan->query->k, wanted = 8 + k / 16 < ranked / 8 ? 8 + k / 16 : ranked / 8;
    int32_t last = -1;
    if (wanted < 1 + k / 64) return false; /* they would hardly have k documents */
    for (int64_t block = 0; block < blocks; block++) {
        if (!m->states[block]) continue;
        int32_t level = (largest - bits_of(m->bounds[block])) >> LEVEL_BITS;
        sizes[level < LEVELS ? level : LEVELS - 1]++;
    }
    while (chosen < wanted) chosen += sizes[++last];
    if (chosen > ranked / 2) return false; /* bounds are too much alike */
    for (int64_t block = 0; block < blocks; block++) {
        int32_t level = (largest - bits_of(m->bounds[block])) >> LEVEL_BITS;
        if (m->states[block] && level <= last) m->states[block] = 2;
    }
    return true;
}
