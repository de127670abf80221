#include "version.h"

#include <stdlib.h>

int find_name(const Version *version, int64_t member, int64_t document, const char **name, int64_t *length) {
    const Member *m = &version->members[member];
    int64_t batch = document / m->batch, row = document - batch * m->batch, start, stop;
    const Names *names = &m->names[batch];
    if (batch >= m->batches || row >= names->documents) return DAMAGED;
    if (m->verified && !m->verified[batch]) return UNVERIFIED;
    start = names->offsets[row], stop = names->offsets[row + 1];
    if (start < 0 || stop < start || stop > names->size) return DAMAGED;
    *name = names->text + start, *length = stop - start;
    return DONE;
}

/* Return the place of an id; NULL: there is none. */
static const int64_t *place_of(const Member *m, int64_t document) {
    int64_t batch = document / m->batch;
    return batch < m->batches ? m->names[batch].offsets + document % m->batch : NULL;
}

static void read_name(const void *names, int64_t document) {
    const int64_t *place = place_of(names, document);
    if (place) read_ahead(place, 2 * sizeof *place);
}

static int better_first(const void *one, const void *other) {
    const Row *a = one, *b = other;
    int64_t shorter = a->length < b->length ? a->length : b->length;
    int order;
    if (a->hit.score != b->hit.score) return a->hit.score > b->hit.score ? -1 : 1;
    order = memcmp(a->name, b->name, (size_t)shorter);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

/* Append the hits of a member, and keep the best k of all; returns the state. */
static int merge(const Version *version, int64_t member, const Query *query, bool named, Merged *merged) {
    const Found *found = &merged->found;
    Row *rows = realloc(merged->rows, (size_t)(merged->number + found->number + 1) * sizeof *rows);
    int state = DONE;
    if (!rows) return NO_MEMORY;
    merged->rows = rows;
    for (int64_t i = 0; named && i < found->number; i++)
        __builtin_prefetch(place_of(&version->members[member], found->hits[i].document));
    for (int64_t i = 0; i < found->number; i++) {
        Row *row = &rows[merged->number + i];
        row->hit = found->hits[i], row->member = member;
        if (named && state != DAMAGED) {
            int one = find_name(version, member, row->hit.document, &row->name, &row->length);
            if (one == DONE)
                found->from_disk ? read_ahead(row->name, row->length) : __builtin_prefetch(row->name);
            else
                state = one;
        }
    }
    merged->number += found->number;
    if (state != DONE || version->count == 1) return state; /* the hits of one shard are in order */
    qsort(rows, (size_t)merged->number, sizeof *rows, better_first);
    if (merged->number > query->k) merged->number = query->k;
    return DONE;
}

int search_version(const Version *version, const Query *query, const uint8_t *const *allowed, bool named,
                   Merged *merged) {
    Query each = *query;
    int worst = DONE, merging;
    memset(merged, 0, sizeof *merged);
    named |= version->count > 1; /* ids decide between hits of equal score */
    each.read_name = read_name;
    for (int64_t i = 0; i < version->count && worst == DONE; i++) {
        const Member *member = &version->members[i];
        merged->failed = i;
        each.allowed = allowed && allowed[i] ? allowed[i] : member->alive;
        each.names = named ? member : NULL;
        each.k = query->k < member->shard->forward.documents ? query->k : member->shard->forward.documents;
        worst = match_shard(member->shard, &each, &merged->found);
        if (worst < 0 || worst == UNVERIFIED) break;
        merged->matched += merged->found.matched;
        merging = merge(version, i, query, named, merged);
        if (merging != DONE) return merging;
        /* In the next shards, a document below the k-th best score so far cannot be a hit. */
        if (query->k && merged->number == query->k && merged->rows[query->k - 1].hit.score > each.floor)
            each.floor = merged->rows[query->k - 1].hit.score;
    }
    return worst;
}
