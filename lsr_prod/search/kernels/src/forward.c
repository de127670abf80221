/* Exact scores of given documents, from the forward copy of their vectors. */
#include "kernels.h"
#include "workspace.h"

INLINE bool score_one(const Forward *f, bool wide, int64_t start, int64_t stop, const int32_t *slots, float *found) {
    bool whole = true;
    for (int64_t at = start; at < stop; at++) {
        int64_t term = wide ? ((const int32_t *)f->terms)[at] : (int64_t)((const uint16_t *)f->terms)[at];
        if (term < 0 || term >= f->vocabulary) {
            whole = false;
            continue;
        }
        found[slots[term]] = (float)f->impacts[at];
    }
    return whole;
}

/* Score documents one by one, in float32 and in the query's order; `counts` are the shared terms. */
int score_documents(const Forward *f, const int64_t *documents, int64_t count, int64_t dk, const int32_t *ids,
                    const float *weights, int64_t terms, float *scores, uint16_t *counts) {
    Workspace *m = forward_workspace(f->vocabulary, terms);
    int state = DONE;
    if (!m) return NO_MEMORY;
    for (int64_t i = 0; i < terms; i++)
        if (ids[i] >= 0 && ids[i] < f->vocabulary) m->slots[ids[i]] = (int32_t)(i + 1);
    for (int64_t i = 0; i <= terms; i++) m->found[i] = 0;
    for (int64_t at = 0; at < count; at++) {
        int64_t start, stop, document = documents[at];
        float score = 0;
        uint16_t shared = 0;
        if (document < 0 || document >= f->documents) {
            state = DAMAGED;
            break;
        }
        start = f->offsets[document], stop = f->offsets[document + 1];
        if (start < 0 || stop < start || stop > f->items) {
            state = DAMAGED;
            break;
        }
        if (stop - start > dk) stop = start + dk;
        if (!(f->wide ? score_one(f, true, start, stop, m->slots, m->found)
                      : score_one(f, false, start, stop, m->slots, m->found)))
            state = DAMAGED;
        for (int64_t i = 1; i <= terms; i++) {
            if (m->found[i] > 0) {
                score += weights[i - 1] * m->found[i];
                m->found[i] = 0;
                shared++;
            }
        }
        scores[at] = score;
        counts[at] = shared;
    }
    for (int64_t i = 0; i < terms; i++)
        if (ids[i] >= 0 && ids[i] < f->vocabulary) m->slots[ids[i]] = 0;
    return state;
}
