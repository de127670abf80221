/* Match one query against one shard.
 *
 * Documents form windows. In each one, the postings of one query term after another are added to a cell per document:
 * sums of integer products of 16 bits, which are close to the scores from both sides. A sweep over the cells counts the
 * matches, and offers the documents whose sum can be the one of a hit. At the end these candidates get their scores,
 * float32 sums in the query's order, from the forward copy. So the hits do not depend on the instruction set, nor on
 * which documents were candidates.
 *
 * With the score s of a document and its sum u: u - over <= s * scale <= u + under.
 *
 * With a `scan_share` below 1, only the terms that can add most are scanned. The sum of a document then lacks the other
 * terms, of which `under` has a part: a document that they add more to may be missed. Scores have all terms.
 */
#include <stdlib.h>

#include "scan.h"

#define FEW_TERMS 128  /* of a query whose products are all at least 1 */
#define MORE_ROOM 4096 /* candidates before they are scored, in addition to ROOM_PER_HIT * k */
#define ROOM_PER_HIT 4
#define LEFT_OUT .25 /* times the square of `scan_share`: part of what the other terms can add that candidates lack */

INLINE bool is_counted(const Query *query, int64_t i) {
    return !query->counted || query->counted[i];
}

/* Check the directory of a term; returns the state. */
static int check_term(const Shard *shard, int64_t term) {
    if (term < 0 || term >= shard->terms) return DAMAGED;
    if (shard->verified_terms && !shard->verified_terms[term]) return UNVERIFIED;
    if (shard->term_runs[term] > shard->term_runs[term + 1] || shard->term_runs[term + 1] > shard->runs) return DAMAGED;
    if (shard->term_postings[term] > shard->term_postings[term + 1]) return DAMAGED;
    if (shard->term_ids[term] > shard->term_ids[term + 1]) return DAMAGED;
    return shard->term_postings[term + 1] > shard->postings || shard->term_ids[term + 1] > shard->id_items ? DAMAGED
                                                                                                           : DONE;
}

/* Return what a term can add to a sum, in units of 1/256. */
static uint32_t most_added(const Cursor *cursor) {
    return (uint32_t)cursor->weight * cursor->high;
}

static int most_first(const void *one, const void *other) {
    const Cursor *a = one, *b = other;
    uint32_t of_a = most_added(a), of_b = most_added(b);
    if (of_a != of_b) return of_a > of_b ? -1 : 1;
    return (a->posting > b->posting) - (a->posting < b->posting);
}

/* Choose the terms that are scanned: those that can add most. */
static void leave_out_terms(Scan *scan) {
    Cursor *cursors = scan->memory->cursors;
    double total = 0, scanned = 0, share = scan->query->scan_share;
    for (int64_t i = 0; i < scan->query->terms; i++) {
        uint8_t tenth = scan->shard->tenths[scan->query->ids[i]];
        cursors[i].high = tenth ? tenth : 255;
        total += most_added(&cursors[i]);
    }
    qsort(cursors, (size_t)scan->query->terms, sizeof *cursors, most_first);
    for (scan->scanned = 0; scanned < share * total; scan->scanned++)
        scanned += most_added(&cursors[scan->scanned]);
    scan->under += (int64_t)(LEFT_OUT * share * share * (total - scanned) / 256);
}

/* Choose the type of the cells, the scale and the weights of fixed point, and how far sums are from scores. */
static int prepare(Scan *scan) {
    const Query *query = scan->query;
    const Shard *shard = scan->shard;
    double total = 0, heaviest = 0;
    bool few = query->terms <= FEW_TERMS;
    scan->wide = !few || query->required != 1;
    for (int64_t i = 0; i < query->terms; i++) {
        int state = check_term(shard, query->ids[i]);
        if (state != DONE) return state;
        total += 255.0 * query->weights[i];
        if (query->weights[i] > heaviest) heaviest = query->weights[i];
        scan->wide |= !is_counted(query, i);
    }
    if (total > 0) {
        double most = SUMS / 256.0 / heaviest;
        scan->scale = (SUMS - (few ? 255.0 * (double)query->terms : 0)) / total;
        if (scan->scale > most) scan->scale = most;
    }
    scan->under = 2 + query->terms / 64; /* more than the rounding errors of float32 sums */
    for (int64_t i = 0; i < query->terms; i++) {
        uint32_t term = (uint32_t)query->ids[i];
        double weight = 256 * scan->scale * query->weights[i];
        /* A product is at least 1, so that a sum above 0 is a match, or a score above 0. */
        bool lift = few && weight < 256 && (query->weights[i] > 0 || !scan->wide);
        scan->memory->cursors[i] =
            (Cursor){shard->term_runs[term],         shard->term_runs[term + 1], shard->term_postings[term],
                     shard->term_postings[term + 1], shard->term_ids[term],      shard->term_ids[term + 1],
                     lift ? 256 : (uint16_t)weight,  0,                          is_counted(query, i)};
        scan->under += 2;
        if (lift) scan->over += 255;
    }
    scan->scanned = query->terms;
    if (query->scan_share < 1 && query->required == 1) leave_out_terms(scan);
    return DONE;
}

/* Return a score that k documents reach: that of the term whose k-th largest impact gives the most. */
static float surely_reached(const Scan *scan) {
    const Query *query = scan->query;
    const uint8_t *ranked = query->k <= 10 ? scan->shard->tenths : query->k <= 100 ? scan->shard->hundredths : NULL;
    float best = 0;
    if (!ranked || !query->k || query->allowed || query->required != 1 || scan->scanned < query->terms) return 0;
    for (int64_t i = 0; i < query->terms; i++) {
        float score = query->weights[i] * (float)ranked[query->ids[i]];
        if (score > best && is_counted(query, i)) best = score;
    }
    return best;
}

/* Return the lowest sum of a candidate before any document was read. */
static int64_t first_least(const Scan *scan) {
    const Query *query = scan->query;
    bool positive = !scan->wide || (query->floor > 0 && query->terms <= FEW_TERMS);
    float reached = surely_reached(scan);
    int64_t least = least_sum(scan, query->floor > reached ? query->floor : reached);
    if (!query->k) return SUMS + 1;
    return least > positive ? least : positive;
}

/* Add the next run of a term to the cells; returns the state. */
static int add_run(Scan *scan, int64_t i, int64_t size) {
    const Shard *shard = scan->shard;
    Cursor *c = &scan->memory->cursors[i];
    uint32_t *cells = scan->memory->cells, unit = c->counted ? 1u << 16 : 0;
    int64_t count = shard->run_counts[c->run] + (int64_t)1, items = count > DENSE ? DENSE : count;
    const uint16_t *ids = shard->ids + c->id;
    const uint8_t *impacts = shard->impacts + c->posting;
    if (count > c->last_posting - (int64_t)c->posting || items > c->last_id - (int64_t)c->id) return DAMAGED;
    if (count > DENSE) {
        int64_t words = (size + 63) / 64;
        if (!(scan->wide ? instructions->add_bits_wide(cells, ids, words, impacts, count, c->weight, unit)
                         : instructions->add_bits((uint16_t *)cells, ids, words, impacts, count, c->weight)))
            return DAMAGED;
    } else {
        if (!instructions->are_below(ids, count, size)) return DAMAGED;
        if (scan->wide)
            instructions->add_ids_wide(cells, ids, impacts, count, c->weight, unit);
        else
            instructions->add_ids((uint16_t *)cells, ids, impacts, count, c->weight);
    }
    c->run++, c->posting += (uint32_t)count, c->id += (uint32_t)items;
    scan->found->postings += count;
    return DONE;
}

/* Return the first window that has a run which was not added; INT64_MAX: there is none. */
static int64_t next_window(const Scan *scan) {
    int64_t next = INT64_MAX;
    for (int64_t i = 0; i < scan->scanned; i++) {
        const Cursor *c = &scan->memory->cursors[i];
        if (c->run < c->last_run && scan->shard->run_windows[c->run] < next) next = scan->shard->run_windows[c->run];
    }
    return next;
}

static int scan_windows(Scan *scan) {
    const Shard *shard = scan->shard;
    int64_t documents = shard->forward.documents, last = -1;
    for (int64_t window = next_window(scan); window != INT64_MAX; window = next_window(scan)) {
        int64_t first = window << WINDOW_BITS, size = documents - first < WINDOW ? documents - first : WINDOW;
        if (window <= last || size <= 0) return DAMAGED;
        last = window;
        if (scan->query->deadline > 0 && seconds_now() >= scan->query->deadline) return PARTIAL;
        for (int64_t i = 0; i < scan->scanned; i++) {
            const Cursor *c = &scan->memory->cursors[i], *after = c + (i + 1 < scan->scanned);
            __builtin_prefetch(shard->ids + after->id), __builtin_prefetch(shard->impacts + after->posting);
            if (c->run == c->last_run || shard->run_windows[c->run] != window) continue;
            if (add_run(scan, i, size) != DONE) return DAMAGED;
        }
        (scan->wide ? instructions->sweep_wide : instructions->sweep)(scan, first, size);
        if (scan->state != DONE) return scan->state;
    }
    return DONE;
}

/* Return the k-th largest sum of the candidates, which are at least k. */
static int64_t rank_sums(const Candidate *candidates, int64_t listed, int64_t k) {
    uint32_t high[256] = {0}, low[256] = {0}, above = 0;
    int64_t first = 255, second = 255;
    for (int64_t i = 0; i < listed; i++) high[candidates[i].sum >> 8]++;
    while (above + high[first] < k) above += high[first--];
    for (int64_t i = 0; i < listed; i++) low[candidates[i].sum & 255] += candidates[i].sum >> 8 == first;
    while (above + low[second] < k) above += low[second--];
    return first << 8 | second;
}

/* Raise the lowest sum by the k-th largest one so far, and drop the candidates below it. */
static void cut_candidates(Scan *scan) {
    Candidate *candidates = scan->memory->candidates;
    int64_t k = scan->query->k, listed = scan->listed, least;
    if (k && listed >= k) {
        int64_t reached = rank_sums(candidates, listed, k);
        /* With one term, equal sums are equal scores, and the documents that follow have larger ids. */
        bool single = scan->query->terms == 1 && scan->query->weights[0] > 0;
        scan->kept = single ? reached : reached - scan->over - scan->under;
        least = single ? reached + 1 : scan->kept;
        if (least > scan->least) scan->least = least;
        scan->listed = 0;
        for (int64_t i = 0; i < listed; i++) {
            candidates[scan->listed] = candidates[i];
            scan->listed += candidates[i].sum >= scan->kept;
        }
    }
    scan->cut = scan->listed + k / 2 + MORE_BEFORE_CUT;
    if (scan->cut > scan->room) scan->cut = scan->room;
}

void offer_candidates(Scan *scan, int64_t first, uint64_t bits) {
    Workspace *m = scan->memory;
    for (; bits && scan->state == DONE; bits &= bits - 1) {
        int64_t document = first + __builtin_ctzll(bits), cell = document & (WINDOW - 1);
        uint16_t sum = scan->wide ? (uint16_t)m->cells[cell] : ((uint16_t *)m->cells)[cell];
        if (sum < scan->least || document >= scan->shard->forward.documents) continue;
        m->candidates[scan->listed++] = (Candidate){(uint32_t)document, sum};
        if (scan->listed == scan->cut) cut_candidates(scan);
        if (scan->listed == scan->room) scan->state = score_candidates(scan);
    }
}

void mark_matches(Scan *scan, int64_t first, uint64_t bits) {
    int64_t documents = scan->shard->forward.documents;
    for (; bits; bits &= bits - 1) {
        int64_t document = first + __builtin_ctzll(bits);
        if (document < documents) scan->query->marks[document] = 1;
    }
}

int match_shard(const Shard *shard, const Query *query, Found *found) {
    Workspace *memory;
    Scan scan = {.shard = shard, .query = query, .found = found, .room = ROOM_PER_HIT * query->k + MORE_ROOM};
    int state;
    memset(found, 0, sizeof *found);
    memory = scan.memory = workspace_of_thread(query->terms, scan.room, query->k, shard->forward.vocabulary);
    if (!memory) return NO_MEMORY;
    state = prepare(&scan);
    if (state != DONE) return state;
    scan.least = scan.kept = first_least(&scan);
    cut_candidates(&scan);
    state = scan_windows(&scan);
    if (state == DONE || state == PARTIAL) {
        int scored;
        cut_candidates(&scan);
        scored = score_candidates(&scan);
        if (scored != DONE) state = scored;
    }
    if (state == DONE || state == PARTIAL) {
        sort_hits(&scan);
        found->number = scan.filled;
    } else {
        memset(memory->cells, 0, sizeof memory->cells);
    }
    found->hits = memory->hits;
    return state;
}
