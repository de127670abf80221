/* Scan blocks: the runs of one term after another inside a window of blocks, so that memory is read in sequence. */
#include "scan.h"

#define GROUP 32     /* documents whose best score is compared at once */
#define MANY 16      /* terms of a query from which on blocks are dropped between stages */
#define STAGES 4     /* of the terms of such a query */
#define HOPELESS .5f /* share of the lowest score that a block's other terms can add, above which it is not looked at */
#define DROPPED 3    /* state of a block of which not all terms were read */

/* Add the postings of one run; returns false if a bitmap has another number of bits than the run has postings. */
INLINE bool add_run(const Postings *p, bool wide, bool compressed, const Run *run, float weight, uint16_t adds,
                    float *scores, uint16_t *counts) {
    int64_t count = run->count, id_at = run->id_at;
    const uint8_t *impacts = p->impacts + run->impact_at;
    if (compressed && count == 1) {
        uint8_t local = ((const uint8_t *)p->ids)[id_at];
        scores[local] += weight * (float)p->run_maxima[run->run];
        counts[local] += adds;
    } else if (compressed && count > BITMAP_ABOVE) {
        const uint8_t *bitmap = (const uint8_t *)p->ids + id_at;
        int64_t at = 0;
        for (int64_t word = 0; word < BITMAP_ABOVE / 8; word++) {
            uint64_t bits;
            memcpy(&bits, bitmap + 8 * word, sizeof bits);
            if (at + __builtin_popcountll(bits) > count) return false;
            for (; bits; bits &= bits - 1) {
                int64_t local = 64 * word + __builtin_ctzll(bits);
                scores[local] += weight * (float)impacts[at++];
                counts[local] += adds;
            }
        }
        return at == count;
    } else if (wide) {
        const uint16_t *ids = (const uint16_t *)p->ids + id_at;
        for (int64_t at = 0; at < count; at++) {
            scores[ids[at]] += weight * (float)impacts[at];
            counts[ids[at]] += adds;
        }
    } else {
        const uint8_t *ids = (const uint8_t *)p->ids + id_at;
        for (int64_t at = 0; at < count; at++) {
            scores[ids[at]] += weight * (float)impacts[at];
            counts[ids[at]] += adds;
        }
    }
    return true;
}

/* List the runs of a term that begin before block `stop`, those of blocks whose state is `wanted`; returns their number.
 *
 * Whether a run is wanted cannot be predicted, so every run is written and only wanted ones are kept. */
INLINE int64_t list_window(const Postings *p, bool wide, bool compressed, Cursor *cursor, int64_t stop,
                           const uint8_t *states, uint8_t wanted, Run *runs) {
    Cursor c = *cursor;
    int64_t listed = 0;
    for (; c.run < c.last_run; c.run++) {
        int64_t gap = p->run_gaps[c.run], count;
        if (gap == NO_RUN) {
            c.block += gap;
            continue;
        }
        if (c.block + gap >= stop) break;
        c.block += gap;
        count = count_of(p, wide, c.run);
        runs[listed] = (Run){c.run, c.id_at, c.impact_at, (int32_t)c.block, (int32_t)count};
        listed += states[c.block] == wanted;
        c.id_at += compressed && count > BITMAP_ABOVE ? BITMAP_ABOVE : count;
        c.impact_at += compressed && count == 1 ? 0 : count;
    }
    *cursor = c;
    return listed;
}

/* Add the postings of listed runs of one term; returns their number, or -1 if a bitmap is damaged. */
INLINE int64_t add_runs(const Postings *p, bool wide, bool compressed, const Run *runs, int64_t listed, int64_t start,
                        float weight, uint16_t adds, float *scores, uint16_t *counts) {
    int64_t places = wide ? 1 << 16 : 1 << 8, added = 0;
    for (int64_t i = 0; i < listed; i++) {
        int64_t base = (runs[i].block - start) * places;
        if (!add_run(p, wide, compressed, &runs[i], weight, adds, scores + base, counts + base)) return -1;
        added += runs[i].count;
    }
    return added;
}

/* Read some terms in one window: list all their runs, then add them. */
INLINE bool read_some(Scan *scan, bool wide, bool compressed, int64_t first, int64_t last, int64_t start, int64_t stop,
                      uint8_t wanted, float *rest) {
    const Postings *p = scan->postings;
    const Query *query = scan->query;
    Workspace *m = scan->memory;
    int64_t ends[TERMS_AT_ONCE], listed = 0, begin = 0;
    for (int64_t i = first; i < last; i++) {
        int64_t more = list_window(p, wide, compressed, &m->cursors[i], stop, m->states, wanted, m->runs + listed);
        ends[i - first] = listed += more;
    }
    for (int64_t i = first; i < last; i++) {
        int64_t end = ends[i - first], added;
        for (int64_t at = begin; rest && at < end; at++)
            rest[m->runs[at].block - start] -= query->weights[i] * (float)p->run_maxima[m->runs[at].run];
        added = add_runs(p, wide, compressed, m->runs + begin, end - begin, start, query->weights[i], query->counted[i],
                         m->scores, m->counts);
        if (added < 0) return false;
        scan->found->postings += added;
        begin = end;
    }
    return true;
}

/* Drop blocks none of whose documents can be a hit, whatever the terms add that were not read; returns the others. */
INLINE int64_t drop_read(Scan *scan, int64_t start, int64_t stop, uint8_t wanted, const float *rest) {
    const float *scores = scan->memory->scores;
    uint8_t *states = scan->memory->states;
    int64_t alive = 0;
    for (int64_t block = start; block < stop; block++, scores += 1 << 8) {
        int32_t best = 0;
        float highest;
        if (states[block] != wanted) continue;
        alive++;
        if (rest[block - start] > HOPELESS * scan->least) continue;
        for (int64_t place = 0; place < 1 << 8; place++) {
            int32_t bits = bits_of(scores[place]);
            best = bits > best ? bits : best;
        }
        memcpy(&highest, &best, sizeof highest);
        if (highest + rest[block - start] >= scan->least) continue;
        states[block] = DROPPED;
        scan->found->skipped = true;
        alive--;
    }
    return alive;
}

/* Read all terms in one window. Those of long queries are read in stages, heaviest first: after each one, blocks are
 * dropped whose documents would need more than the other terms can add. */
INLINE bool read_terms(Scan *scan, int64_t start, int64_t stop, uint8_t wanted) {
    const Postings *p = scan->postings;
    int64_t terms = scan->query->terms, step = terms / STAGES + 1;
    bool stages = terms >= MANY && !p->wide && !scan->query->exhaustive, whole = true;
    float bounds[WINDOW], *rest = stages ? bounds : NULL;
    if (!stages || step > TERMS_AT_ONCE) step = TERMS_AT_ONCE;
    if (stages) memcpy(bounds, scan->memory->bounds + start, (size_t)(stop - start) * sizeof *bounds);
    for (int64_t first = 0; whole && first < terms; first += step) {
        int64_t last = first + step < terms ? first + step : terms;
        if (p->wide)
            whole = read_some(scan, true, false, first, last, start, stop, wanted, NULL);
        else if (p->compressed)
            whole = read_some(scan, false, true, first, last, start, stop, wanted, rest);
        else
            whole = read_some(scan, false, false, first, last, start, stop, wanted, rest);
        if (stages && last < terms && scan->least > 0 && !drop_read(scan, start, stop, wanted, rest)) break;
    }
    return whole;
}

/* Return whether a local id beyond the documents of a block left a score. */
INLINE bool has_strays(const float *scores, const uint16_t *counts, int64_t first, int64_t last) {
    int64_t strays = 0;
    for (int64_t place = first; place < last; place++) strays |= (int64_t)(scores[place] != 0) | counts[place];
    return strays != 0;
}

/* Count the documents of a block that match. */
INLINE int64_t count_matches(const uint16_t *counts, const uint8_t *allowed, int64_t size, uint16_t required) {
    int64_t seen = 0;
    for (int64_t start = 0; start < size; start += 256) {
        int64_t stop = start + 256 < size ? start + 256 : size;
        uint16_t some = 0; /* narrow sums fill a register with more of them */
        if (allowed)
            for (int64_t place = start; place < stop; place++) some += (counts[place] >= required) & allowed[place];
        else
            for (int64_t place = start; place < stop; place++) some += counts[place] >= required;
        seen += some;
    }
    return seen;
}

/* Offer the documents of a scanned block, and restore its zeros. */
INLINE void finish_block(Scan *scan, int64_t block, float *scores, uint16_t *counts, int64_t places) {
    const Postings *p = scan->postings;
    const Query *query = scan->query;
    int64_t base = block * p->block_size, size = p->documents - base;
    const uint8_t *allowed = query->allowed ? query->allowed + base : NULL;
    uint16_t required = query->required > UINT16_MAX ? UINT16_MAX : (uint16_t)query->required;
    int64_t seen;
    if (size > p->block_size) size = p->block_size;
    seen = count_matches(counts, allowed, size, required);
    scan->found->matched += seen;
    for (int64_t start = 0; seen && query->k && start < size; start += GROUP) {
        int64_t stop = start + GROUP < places ? start + GROUP : places;
        int32_t best = 0;
        for (int64_t place = start; place < stop; place++) {
            int32_t bits = bits_of(scores[place]);
            best = bits > best ? bits : best;
        }
        if (best < bits_of(scan->least)) continue;
        for (int64_t place = start; place < stop && place < size; place++) {
            if (scores[place] < scan->least || counts[place] < required || (allowed && !allowed[place])) continue;
            offer(scan, scores[place], base + place, counts[place]);
        }
    }
    memset(scores, 0, (size_t)places * sizeof *scores);
    memset(counts, 0, (size_t)places * sizeof *counts);
}

/* Scan the blocks of one window whose state is `wanted`. */
INLINE int scan_window(Scan *scan, int64_t start, int64_t stop, uint8_t wanted) {
    Workspace *m = scan->memory;
    const Postings *p = scan->postings;
    int64_t places = p->wide ? 1 << 16 : 1 << 8;
    if (!read_terms(scan, start, stop, wanted)) return DAMAGED;
    for (int64_t block = start; block < stop; block++) {
        float *scores = m->scores + (block - start) * places;
        uint16_t *counts = m->counts + (block - start) * places;
        if (m->states[block] != wanted && m->states[block] != DROPPED) continue;
        m->states[block] = 0;
        if (p->block_size < places && has_strays(scores, counts, p->block_size, places)) return DAMAGED;
        finish_block(scan, block, scores, counts, places);
    }
    return DONE;
}

/* Drop the wanted blocks of a window that cannot hold a hit any more; returns the number of the others. */
INLINE int64_t drop_blocks(Scan *scan, int64_t start, int64_t stop, uint8_t wanted) {
    uint8_t *states = scan->memory->states;
    const float *bounds = scan->memory->bounds;
    float least = scan->query->exhaustive ? 0 : scan->least;
    int32_t alive = 0, dropped = 0;
    for (int64_t block = start; block < stop; block++) {
        int32_t asked = states[block] == wanted, drop = asked & (bounds[block] < least);
        states[block] = drop ? 0 : states[block];
        alive += asked - drop;
        dropped |= drop;
    }
    scan->found->skipped |= dropped != 0;
    return alive;
}

FOR_EVERY_CPU int scan_blocks(Scan *scan, uint8_t wanted) {
    const Postings *p = scan->postings;
    const Query *query = scan->query;
    Workspace *m = scan->memory;
    int64_t window = window_of(p), apart = scan->stride * window, mark = -1;
    for (int64_t start = 0; start < p->blocks; start += window) {
        int64_t stop = start + window < p->blocks ? start + window : p->blocks;
        int state;
        if (!drop_blocks(scan, start, stop, wanted)) continue;
        if (is_late(query)) return PARTIAL;
        if (start / apart != mark) {
            mark = start / apart;
            memcpy(m->cursors, m->marks + mark * query->terms, (size_t)query->terms * sizeof *m->cursors);
        }
        state = scan_window(scan, start, stop, wanted);
        if (state != DONE) return state;
    }
    return DONE;
}
