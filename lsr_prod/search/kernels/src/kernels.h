/* Kernels of lsr_prod: what the sources of the extension share. formats/shard.py describes the arrays. */
#ifndef LSR_PROD_KERNELS_H
#define LSR_PROD_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#define NO_RUN 255       /* in run_gaps: skip that many blocks, no run */
#define BITMAP_ABOVE 32  /* postings of a compressed run above which its ids are a bitmap; also bytes of the bitmap */

/* Hot functions are compiled for several levels of x86-64; the first call of a process chooses by CPU. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define FOR_EVERY_CPU __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define FOR_EVERY_CPU
#endif
#define INLINE static inline __attribute__((always_inline))

enum { DONE = 0, PARTIAL = 1, DAMAGED = -1, NO_MEMORY = -2 };

/* Postings of one shard. */
typedef struct {
    const uint32_t *term_runs;
    const int64_t *term_postings;
    const uint8_t *run_gaps;
    const void *run_counts; /* uint8 or uint16, like ids */
    const uint8_t *run_maxima;
    const int64_t *term_ids;
    const int64_t *term_impacts;
    const void *ids;
    const uint8_t *impacts;
    const uint32_t *id_rank;
    int64_t terms, runs, id_items, impact_items, documents, blocks, block_size;
    bool wide;       /* ids and counts are uint16 */
    bool compressed; /* runs can be bitmaps, and runs of one posting have no item in impacts */
} Postings;

/* One query; the caller keeps the arrays alive. */
typedef struct {
    const int32_t *ids;
    const float *weights;
    const uint8_t *counted; /* 1 if the term counts towards `required` */
    int64_t terms;
    int64_t required;
    int64_t k;
    float floor;            /* lowest score of a hit */
    bool exhaustive;        /* read every block that can hold a match */
    const uint8_t *allowed; /* of each document; NULL: all */
    double deadline;        /* seconds of the monotonic clock; 0: none */
} Query;

/* One document that matches. */
typedef struct {
    float score;
    uint16_t count; /* shared terms */
    int64_t document;
} Hit;

/* The best documents of one shard, the best one first; memory of the calling thread, valid until its next query. */
typedef struct {
    const Hit *hits;
    int64_t number;   /* of hits */
    int64_t matched;  /* documents read that match */
    int64_t postings; /* read */
    bool skipped;     /* a block was not read because none of its documents can be a hit */
} Found;

int match_shard(const Postings *postings, const Query *query, Found *found);
int64_t workspace_bytes(void);

/* Scores of given documents from the forward copy; see forward.c. */
typedef struct {
    const int64_t *offsets;
    const void *terms; /* uint16 or int32 */
    const uint8_t *impacts;
    int64_t documents, items, vocabulary;
    bool wide;
} Forward;

int score_documents(const Forward *forward, const int64_t *documents, int64_t count, int64_t dk, const int32_t *ids,
                    const float *weights, int64_t terms, float *scores, uint16_t *counts);

#endif
