/* Many queries against one shard, as arrays. */
#include <math.h>
#include <stdlib.h>

#include "batch.h"

/* A term of a query. */
typedef struct {
    float weight;
    int32_t id;
} Term;

static int heavier_first(const void *one, const void *other) {
    const Term *a = one, *b = other;
    if (a->weight != b->weight) return a->weight > b->weight ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

static int smaller_first(const void *one, const void *other) {
    const Term *a = one, *b = other;
    return (a->id > b->id) - (a->id < b->id);
}

/* Memory of one call. */
typedef struct {
    Term *terms;
    int32_t *ids;
    float *weights;
    uint8_t *counted;
} Prepared;

/* Sort the terms of a query, heaviest first, without those of weight 0; returns their number, or INVALID. */
static int64_t prepare(const Batch *batch, int64_t first, int64_t last, Prepared *made) {
    int64_t kept = 0;
    double sum = 0;
    for (int64_t at = first; at < last; at++) {
        float weight = batch->weights[at];
        if (!isfinite(weight) || weight < 0 || batch->ids[at] < 0 || batch->ids[at] >= batch->vocabulary) return INVALID;
        sum += weight;
        made->terms[kept] = (Term){weight, batch->ids[at]};
        kept += weight > 0;
    }
    if (sum * batch->step * 255 > batch->largest) return INVALID;
    qsort(made->terms, (size_t)kept, sizeof *made->terms, smaller_first);
    for (int64_t i = 1; i < kept; i++)
        if (made->terms[i].id == made->terms[i - 1].id) return INVALID;
    qsort(made->terms, (size_t)kept, sizeof *made->terms, heavier_first);
    for (int64_t i = 0; i < kept; i++) {
        made->ids[i] = made->terms[i].id;
        made->weights[i] = made->terms[i].weight * batch->step;
        made->counted[i] = 1;
    }
    return kept;
}

static int match_one(const Postings *postings, const Batch *batch, int64_t number, Prepared *made) {
    Found found;
    Query query = {.ids = made->ids, .weights = made->weights, .counted = made->counted, .allowed = batch->allowed};
    int state;
    query.terms = prepare(batch, batch->offsets[number], batch->offsets[number + 1], made);
    if (query.terms < 0) return INVALID;
    query.k = batch->k < postings->documents ? batch->k : postings->documents;
    query.required = batch->required[query.terms];
    query.floor = batch->floors[number];
    query.exhaustive = false;
    query.deadline = batch->deadline;
    state = match_shard(postings, &query, &found);
    batch->numbers[number] = 0;
    if (state != DONE && state != PARTIAL) return state;
    for (int64_t at = 0; at < found.number; at++) {
        batch->documents[number * batch->k + at] = found.hits[at].document;
        batch->scores[number * batch->k + at] = found.hits[at].score;
        batch->counts[number * batch->k + at] = found.hits[at].count;
    }
    batch->numbers[number] = found.number;
    return state;
}

int match_batch(const Postings *postings, const Batch *batch, int64_t *failed) {
    int64_t longest = 1;
    int worst = DONE;
    Prepared made;
    for (int64_t i = 0; i < batch->queries; i++)
        if (batch->offsets[i + 1] - batch->offsets[i] > longest) longest = batch->offsets[i + 1] - batch->offsets[i];
    made.terms = malloc((size_t)longest * sizeof *made.terms);
    made.ids = malloc((size_t)longest * sizeof *made.ids);
    made.weights = malloc((size_t)longest * sizeof *made.weights);
    made.counted = malloc((size_t)longest);
    if (!made.terms || !made.ids || !made.weights || !made.counted) worst = NO_MEMORY;
    for (int64_t i = 0; i < batch->queries && worst >= 0; i++) {
        int state = match_one(postings, batch, i, &made);
        *failed = i;
        if (state != DONE) worst = state;
    }
    free(made.terms), free(made.ids), free(made.weights), free(made.counted);
    return worst;
}
