/* One level of the recursive graph bisection of indexing/impacts/order.py, which names its source. */
#include <stdlib.h>
#include <string.h>

#include "build.h"

#define ROUNDS 4      /* most rounds of exchanges per split */
#define LEVELS 4096   /* levels that gains are rounded to */
#define MIN_MOVED 0.005 /* share of documents; a round that exchanges fewer is the last */

typedef struct {
    const int64_t *offsets;
    const void *terms;
    bool wide;
    const float *logs;
    int32_t *left, *right, *seen; /* document frequencies on both sides, and the terms that have one */
    float *gain_left, *gain_right;
    float *gains;    /* of each document of the set */
    int64_t *ranked; /* positions of both sides by falling gain */
} Split;

INLINE int64_t term_at(const Split *s, int64_t at) {
    return s->wide ? ((const int32_t *)s->terms)[at] : (int64_t)((const uint16_t *)s->terms)[at];
}

static int64_t count_sides(Split *s, const int64_t *places, int64_t size, int64_t half) {
    int64_t distinct = 0;
    for (int64_t i = 0; i < size; i++) {
        for (int64_t at = s->offsets[places[i]]; at < s->offsets[places[i] + 1]; at++) {
            int64_t term = term_at(s, at);
            if (s->left[term] == 0 && s->right[term] == 0) s->seen[distinct++] = (int32_t)term;
            if (i < half)
                s->left[term]++;
            else
                s->right[term]++;
        }
    }
    return distinct;
}

/* Compute the bits saved by moving one posting of a term to the other side. */
static void term_gains(Split *s, int64_t size_left, int64_t size_right, int64_t distinct) {
    float log_left = s->logs[size_left], log_right = s->logs[size_right];
    const float *logs = s->logs;
    for (int64_t i = 0; i < distinct; i++) {
        int32_t term = s->seen[i], a = s->left[term], b = s->right[term];
        double now = (double)a * (double)(log_left - logs[a + 1]) + (double)b * (double)(log_right - logs[b + 1]);
        if (a > 0) {
            double then = (double)(a - 1) * (double)(log_left - logs[a]) +
                          (double)(b + 1) * (double)(log_right - logs[b + 2]);
            s->gain_left[term] = (float)(now - then);
        }
        if (b > 0) {
            double then = (double)(a + 1) * (double)(log_left - logs[a + 2]) +
                          (double)(b - 1) * (double)(log_right - logs[b]);
            s->gain_right[term] = (float)(now - then);
        }
    }
}

/* Write positions by falling gain, rounded to levels: an exact sort would take a third of the total time. */
static void by_falling_gain(const float *gains, int64_t size, int64_t *places) {
    float least = gains[0], largest = gains[0], scale;
    int64_t starts[LEVELS + 1] = {0};
    for (int64_t i = 0; i < size; i++) {
        least = gains[i] < least ? gains[i] : least;
        largest = gains[i] > largest ? gains[i] : largest;
    }
    scale = largest > least ? (float)(LEVELS - 1) / (largest - least) : 0.0f;
    for (int64_t i = 0; i < size; i++) starts[(int64_t)((largest - gains[i]) * scale) + 1]++;
    for (int64_t level = 0; level < LEVELS; level++) starts[level + 1] += starts[level];
    for (int64_t i = 0; i < size; i++) places[starts[(int64_t)((largest - gains[i]) * scale)]++] = i;
}

/* Exchange pairs of documents, largest gain first, while their gain is positive; returns the number of pairs. */
static int64_t exchange(Split *s, int64_t *places, int64_t size, int64_t half) {
    int64_t *movers = s->ranked, *others = s->ranked + half, pairs = half < size - half ? half : size - half;
    by_falling_gain(s->gains, half, movers);
    by_falling_gain(s->gains + half, size - half, others);
    for (int64_t pair = 0; pair < pairs; pair++) {
        int64_t one = movers[pair], other = half + others[pair], moved;
        if (s->gains[one] + s->gains[other] <= 0) return pair;
        for (int64_t at = s->offsets[places[one]]; at < s->offsets[places[one] + 1]; at++) {
            s->left[term_at(s, at)]--;
            s->right[term_at(s, at)]++;
        }
        for (int64_t at = s->offsets[places[other]]; at < s->offsets[places[other] + 1]; at++) {
            s->left[term_at(s, at)]++;
            s->right[term_at(s, at)]--;
        }
        moved = places[one];
        places[one] = places[other];
        places[other] = moved;
    }
    return pairs;
}

static void split_set(Split *s, int64_t *places, int64_t size, int64_t half) {
    int64_t distinct = count_sides(s, places, size, half);
    for (int round = 0; round < ROUNDS; round++) {
        term_gains(s, half, size - half, distinct);
        for (int64_t i = 0; i < size; i++) {
            const float *gain_of = i < half ? s->gain_left : s->gain_right;
            float gain = 0;
            for (int64_t at = s->offsets[places[i]]; at < s->offsets[places[i] + 1]; at++) gain += gain_of[term_at(s, at)];
            s->gains[i] = gain;
        }
        if ((double)exchange(s, places, size, half) < MIN_MOVED * (double)size) break;
    }
    for (int64_t i = 0; i < distinct; i++) s->left[s->seen[i]] = s->right[s->seen[i]] = 0;
}

/* Split the sets `first` to `last - 1`: reorder `places` inside each of them. */
int bisect_sets(int64_t *places, const int64_t *bounds, const int64_t *cuts, int64_t first, int64_t last,
                const Rows *rows, int64_t vocabulary, const float *logs) {
    size_t terms = (size_t)(vocabulary ? vocabulary : 1);
    int64_t largest = 1;
    int state = NO_MEMORY;
    Split s = {.offsets = rows->offsets, .terms = rows->terms, .wide = rows->wide, .logs = logs};
    for (int64_t number = first; number < last; number++)
        if (bounds[number + 1] - bounds[number] > largest) largest = bounds[number + 1] - bounds[number];
    s.left = calloc(terms, sizeof *s.left), s.right = calloc(terms, sizeof *s.right);
    s.seen = malloc(terms * sizeof *s.seen);
    s.gain_left = calloc(terms, sizeof *s.gain_left), s.gain_right = calloc(terms, sizeof *s.gain_right);
    s.gains = malloc((size_t)largest * sizeof *s.gains), s.ranked = malloc((size_t)largest * sizeof *s.ranked);
    if (s.left && s.right && s.seen && s.gain_left && s.gain_right && s.gains && s.ranked) {
        for (int64_t number = first; number < last; number++) {
            int64_t size = bounds[number + 1] - bounds[number], half = cuts[number] - bounds[number];
            if (half > 0 && half < size) split_set(&s, places + bounds[number], size, half);
        }
        state = DONE;
    }
    free(s.left), free(s.right), free(s.seen), free(s.gain_left), free(s.gain_right), free(s.gains), free(s.ranked);
    return state;
}
