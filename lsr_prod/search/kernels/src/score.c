/* Scores of documents, and the best of them. */
#include <sys/mman.h>
#include <unistd.h>

#include "scan.h"

#define MOST_FETCHED 256 /* terms of a vector that is asked for */
#define FETCHED 128      /* candidates whose vectors are asked for at once */
#define SLOW 50e-6       /* seconds of scoring that show that pages came from a disk; for each candidate, */
#define SLOW_EACH 3e-6   /* so many more, which cold caches need at most */
#define READ_AHEAD 64    /* times that candidates are scored after a slow one that read ahead */

/* Whether the first page, or the pages of items `start` to `stop - 1` of an array, were verified. */
static bool is_verified(const Pages *pages, int64_t start, int64_t stop, int64_t size) {
    if (!pages->verified) return true;
    for (int64_t page = (pages->head + start * size) >> PAGE_BITS; page <= (pages->head + stop * size - 1) >> PAGE_BITS;
         page++)
        if (!pages->verified[page]) return false;
    return true;
}

int find_impact(const Shard *shard, int64_t term, int64_t document) {
    int64_t posting, id, place = document & (WINDOW - 1);
    if (term < 0 || term >= shard->terms || document < 0 || document >= shard->forward.documents) return DAMAGED;
    if (shard->term_runs[term + 1] > shard->runs) return DAMAGED;
    posting = shard->term_postings[term], id = shard->term_ids[term];
    for (uint32_t run = shard->term_runs[term]; run < shard->term_runs[term + 1]; run++) {
        int64_t count = shard->run_counts[run] + (int64_t)1, items = count > DENSE ? DENSE : count;
        int64_t low = 0, high = count;
        const uint16_t *ids = shard->ids + id;
        if (posting + count > shard->postings || id + items > shard->id_items) return DAMAGED;
        if (shard->run_windows[run] != document >> WINDOW_BITS) {
            posting += count, id += items;
            continue;
        }
        if (count > DENSE) {
            uint64_t bits;
            memcpy(&bits, ids + (place >> 6 << 2), sizeof bits);
            if (!(bits >> (place & 63) & 1)) return 0;
            low = __builtin_popcountll(bits & (((uint64_t)1 << (place & 63)) - 1)) + instructions->count(ids, place >> 6);
            return low < count ? shard->impacts[posting + low] : DAMAGED;
        }
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (ids[middle] < place)
                low = middle + 1;
            else
                high = middle;
        }
        return low < count && ids[low] == place ? shard->impacts[posting + low] : 0;
    }
    return 0;
}

/* Read the impacts of the query's terms in a document into `found`, by place in the query; returns the state. `pages`
 * is NULL if all pages are verified. */
INLINE int read_vector(const Forward *f, const Pages *pages, int64_t document, const Query *query, const Workspace *m) {
    /* Locals, as a store of a byte could change what a pointer leads to, and all would be read again after it. */
    const bool wide = f->wide;
    const void *terms = f->terms;
    const uint8_t *impacts = f->impacts;
    const uint16_t *slots = m->slots;
    uint8_t *found = m->found;
    int64_t start, stop, size = wide ? 4 : 2, vocabulary = f->vocabulary;
    if (document < 0 || document >= f->documents) return DAMAGED;
    if (pages && !is_verified(&pages[0], document, document + 2, 4)) return UNVERIFIED;
    start = f->offsets[document], stop = f->offsets[document + 1];
    if (stop < start || stop > f->items) return DAMAGED;
    if (stop - start > query->dk) stop = start + query->dk;
    if (pages && stop > start &&
        (!is_verified(&pages[1], start, stop, size) || !is_verified(&pages[2], start, stop, 1)))
        return UNVERIFIED;
    memset(found, 0, (size_t)(query->terms + 1));
    for (int64_t at = start; at < stop; at++) {
        int64_t term = wide ? ((const int32_t *)terms)[at] : (int64_t)((const uint16_t *)terms)[at];
        if (term < 0 || term >= vocabulary) return DAMAGED;
        found[slots[term]] = impacts[at]; /* at 0 those that the query does not have */
    }
    return DONE;
}

/* Add up the score of what was found, in float32 and in the query's order. */
INLINE float score_of(const uint8_t *found, const Query *query, uint16_t *count) {
    float score = 0;
    int64_t shared = 0;
    for (int64_t i = 0; i < query->terms; i++) {
        score += query->weights[i] * (float)found[i + 1];
        shared += found[i + 1] && (!query->counted || query->counted[i]);
    }
    *count = (uint16_t)shared;
    return score;
}

/* Set or clear the slots of the query's terms; the words of a text have no slot. */
static void set_slots(const Query *query, int64_t vocabulary, uint16_t *slots, bool set) {
    for (int64_t i = 0; i < query->terms; i++)
        if (query->ids[i] >= 0 && query->ids[i] < vocabulary) slots[query->ids[i]] = set ? (uint16_t)(i + 1) : 0;
}

int score_documents(const Forward *f, const int64_t *documents, int64_t count, const Query *query, float *scores,
                    uint16_t *counts) {
    Workspace *m = workspace_of_thread(query->terms, 0, 0, f->vocabulary);
    int state = DONE;
    if (!m) return NO_MEMORY;
    set_slots(query, f->vocabulary, m->slots, true);
    for (int64_t i = 0; i < count && state == DONE; i++) {
        state = read_vector(f, NULL, documents[i], query, m);
        scores[i] = score_of(m->found, query, &counts[i]);
    }
    set_slots(query, f->vocabulary, m->slots, false);
    return state;
}

INLINE bool is_worse(const Hit *one, const Hit *other) {
    if (one->score != other->score) return one->score < other->score;
    return one->document > other->document;
}

/* Put a hit into the heap, from `place` down. */
static void sift_down(Hit *hits, int64_t size, int64_t place, Hit hit) {
    for (;;) {
        int64_t child = 2 * place + 1;
        if (child >= size) break;
        if (child + 1 < size && is_worse(&hits[child + 1], &hits[child])) child++;
        if (!is_worse(&hits[child], &hit)) break;
        hits[place] = hits[child];
        place = child;
    }
    hits[place] = hit;
}

static void keep_hit(Scan *scan, Hit hit) {
    Hit *hits = scan->memory->hits;
    int64_t k = scan->query->k;
    if (scan->filled < k) {
        int64_t place = scan->filled++;
        for (; place > 0 && is_worse(&hit, &hits[(place - 1) >> 1]); place = (place - 1) >> 1)
            hits[place] = hits[(place - 1) >> 1];
        hits[place] = hit;
    } else if (is_worse(&hits[0], &hit)) {
        sift_down(hits, k, 0, hit);
    }
}

void sort_hits(Scan *scan) {
    Hit *hits = scan->memory->hits;
    for (int64_t size = scan->filled - 1; size > 0; size--) {
        Hit last = hits[size];
        hits[size] = hits[0];
        sift_down(hits, size, 0, last);
    }
}

/* Score one candidate; returns the state. */
INLINE int score_candidate(Scan *scan, int64_t document) {
    const Shard *shard = scan->shard;
    const Query *query = scan->query;
    Hit hit = {.document = (uint32_t)document};
    int state = read_vector(&shard->forward, shard->pages, document, query, scan->memory);
    if (state != DONE) return state;
    for (int64_t i = 0; i < query->terms; i++) {
        int impact;
        if (query->ids[i] < shard->forward.vocabulary) continue;
        impact = find_impact(shard, query->ids[i], document);
        if (impact < 0) return DAMAGED;
        scan->memory->found[i + 1] = (uint8_t)impact;
    }
    hit.score = score_of(scan->memory->found, query, &hit.count);
    if (hit.score >= query->floor) keep_hit(scan, hit);
    return DONE;
}

void read_ahead(const void *bytes, int64_t size) {
    uintptr_t start = (uintptr_t)bytes & ~((uintptr_t)getpagesize() - 1);
    madvise((void *)start, (uintptr_t)bytes + (uintptr_t)size - start, MADV_WILLNEED);
}

/* Ask for the vectors of the candidates, which lie anywhere in memory, or on the disk. */
static void fetch_vectors(const Scan *scan, const Candidate *candidates, int64_t listed) {
    const Forward *f = &scan->shard->forward;
    const Query *query = scan->query;
    int64_t size = f->wide ? 4 : 2;
    for (int64_t i = 0; i < listed; i++) {
        __builtin_prefetch(f->offsets + candidates[i].document);
        if (scan->found->from_disk && query->names) query->read_name(query->names, candidates[i].document);
    }
    for (int64_t i = 0; i < listed; i++) {
        int64_t start = f->offsets[candidates[i].document], stop = f->offsets[candidates[i].document + 1];
        if (stop > start + MOST_FETCHED) stop = start + MOST_FETCHED;
        if (scan->found->from_disk && stop > start) {
            read_ahead((const char *)f->terms + size * start, size * (stop - start));
            read_ahead(f->impacts + start, stop - start);
        }
        for (int64_t at = start; at < stop; at += 64 / size) __builtin_prefetch((const char *)f->terms + size * at);
        for (int64_t at = start; at < stop; at += 64) __builtin_prefetch(f->impacts + at);
    }
}

int score_candidates(Scan *scan) {
    const Query *query = scan->query;
    Workspace *m = scan->memory;
    int64_t unverified = 0, listed = scan->listed;
    bool from_disk = scan->found->from_disk = m->read_ahead > 0;
    double start = seconds_now();
    int state = DONE;
    set_slots(query, scan->shard->forward.vocabulary, m->slots, true);
    for (int64_t i = 0; i < scan->listed && state != DAMAGED; i++) {
        int scored;
        if (i % FETCHED == 0 && state == DONE)
            fetch_vectors(scan, m->candidates + i, scan->listed - i < FETCHED ? scan->listed - i : FETCHED);
        scored = score_candidate(scan, m->candidates[i].document);
        if (scored == UNVERIFIED) m->candidates[unverified++] = m->candidates[i];
        if (scored != DONE) state = scored;
    }
    set_slots(query, scan->shard->forward.vocabulary, m->slots, false);
    if (from_disk)
        m->read_ahead--;
    else if (seconds_now() - start > SLOW + SLOW_EACH * (double)listed)
        m->read_ahead = READ_AHEAD;
    scan->listed = 0, scan->cut = query->k / 2 + MORE_BEFORE_CUT;
    if (scan->filled == query->k && query->k) {
        int64_t reached = least_sum(scan, m->hits[0].score);
        if (reached > scan->least) scan->least = reached;
    }
    if (state == UNVERIFIED) scan->found->number = unverified, scan->found->unverified = m->candidates;
    return state;
}
