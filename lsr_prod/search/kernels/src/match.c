/* Match one query against one shard.
 *
 * 1. bound_blocks reads the runs of the query's terms, not their postings. Every block gets an upper bound of the scores
 *    of its documents, and the number of counted terms that occur in it. It also proves that no later step can read
 *    outside the arrays.
 * 2. The blocks of the highest bounds are scanned first, which gives a lower bound of the k-th best score.
 * 3. The other blocks that can still hold a hit are scanned in their order; long queries drop blocks between their terms.
 *
 * Scores are float32 sums in the query's order, so they do not depend on which blocks are read. They are never negative,
 * so their bits, read as integers, have the same order.
 */
#include "scan.h"

#define LEAST_WEIGHT 1e-30f /* times an impact it stays above 0 */

/* Check the directory of every term; returns the number of runs, or DAMAGED. */
static int64_t check_terms(const Postings *p, const Query *query) {
    int64_t total = 0;
    for (int64_t i = 0; i < query->terms; i++) {
        int64_t term = query->ids[i];
        if (term < 0 || term >= p->terms) return DAMAGED;
        if (p->term_runs[term] > p->term_runs[term + 1] || p->term_runs[term + 1] > p->runs) return DAMAGED;
        if (p->term_ids[term] < 0 || p->term_ids[term + 1] > p->id_items) return DAMAGED;
        if (p->term_impacts[term] < 0 || p->term_impacts[term + 1] > p->impact_items) return DAMAGED;
        total += (int64_t)p->term_runs[term + 1] - p->term_runs[term];
    }
    return total > p->runs ? DAMAGED : total; /* more: terms that share runs */
}

/* Return whether the terms of blocks must be counted. */
static bool must_count(const Query *query) {
    if (query->required != 1) return true;
    for (int64_t i = 0; i < query->terms; i++)
        if (!(query->weights[i] >= LEAST_WEIGHT)) return true;
    return false;
}

static int match_blocks(Scan *scan) {
    const Query *query = scan->query;
    int64_t ranked = 0, largest;
    int state = bound_blocks(scan);
    if (state != DONE) return state;
    largest = rank_blocks(scan, &ranked);
    if (largest < 0) return DAMAGED;
    if (!query->exhaustive && query->k && choose_best(scan, (int32_t)largest, ranked)) {
        state = scan_blocks(scan, 2);
        if (state != DONE) return state;
    }
    return scan_blocks(scan, 1);
}

int match_shard(const Postings *postings, const Query *query, Found *found) {
    int64_t windows = (postings->blocks + window_of(postings) - 1) / window_of(postings);
    int64_t stride = 1 + windows * query->terms / MOST_MARKS, marked = (windows + stride - 1) / stride * query->terms;
    Workspace *memory = workspace_of_thread(postings, query, marked);
    Scan scan = {postings, query, memory, found, 0, query->floor, must_count(query), stride};
    int state;
    memset(found, 0, sizeof *found);
    if (!memory) return NO_MEMORY;
    if (check_terms(postings, query) < 0) return DAMAGED;
    state = match_blocks(&scan);
    if (state == DAMAGED) {
        clear_workspace(memory);
        return DAMAGED;
    }
    sort_hits(&scan);
    found->hits = memory->hits;
    found->number = scan.filled;
    return state;
}
