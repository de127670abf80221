/* The best documents found so far: a heap whose worst hit is at place 0. */
#include "scan.h"

INLINE bool is_worse(const uint32_t *rank, const Hit *one, const Hit *other) {
    if (one->score != other->score) return one->score < other->score;
    return rank[one->document] > rank[other->document];
}

/* Put a hit into the heap, from `place` down. */
static void sift_down(Hit *hits, const uint32_t *rank, int64_t size, int64_t place, Hit hit) {
    for (;;) {
        int64_t child = 2 * place + 1;
        if (child >= size) break;
        if (child + 1 < size && is_worse(rank, &hits[child + 1], &hits[child])) child++;
        if (!is_worse(rank, &hits[child], &hit)) break;
        hits[place] = hits[child];
        place = child;
    }
    hits[place] = hit;
}

void offer(Scan *scan, float score, int64_t document, uint16_t count) {
    Hit *hits = scan->memory->hits, hit = {score, count, document};
    const uint32_t *rank = scan->postings->id_rank;
    int64_t k = scan->query->k;
    if (scan->filled < k) {
        int64_t place = scan->filled++;
        for (; place > 0 && is_worse(rank, &hit, &hits[(place - 1) >> 1]); place = (place - 1) >> 1)
            hits[place] = hits[(place - 1) >> 1];
        hits[place] = hit;
    } else if (is_worse(rank, &hits[0], &hit)) {
        sift_down(hits, rank, k, 0, hit);
    }
    if (scan->filled == k && hits[0].score > scan->least) scan->least = hits[0].score;
}

void sort_hits(Scan *scan) {
    Hit *hits = scan->memory->hits;
    const uint32_t *rank = scan->postings->id_rank;
    for (int64_t size = scan->filled - 1; size > 0; size--) {
        Hit last = hits[size];
        hits[size] = hits[0];
        sift_down(hits, rank, size, 0, last);
    }
}
