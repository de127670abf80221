/* Kernels of lsr_prod: what the sources of the extension share. formats/shard_format.py describes the arrays. */
#ifndef LSR_PROD_KERNELS_H
#define LSR_PROD_KERNELS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define WINDOW_BITS 14
#define WINDOW (1 << WINDOW_BITS) /* documents whose cells fit into the first cache of a core */
#define DENSE (WINDOW / 16)       /* postings of a run above which its ids are a bitmap; also items of the bitmap */
#define PAGE_BITS 14              /* bytes of a page that is verified at once, formats/pages.py */
#define INLINE static inline __attribute__((always_inline))

/* UNVERIFIED: nothing was found, because pages must be verified first; Found says which. */
enum { DONE = 0, PARTIAL = 1, UNVERIFIED = 2, DAMAGED = -1, NO_MEMORY = -2, INVALID = -3 };

/* Vectors of documents. */
typedef struct {
    const uint32_t *offsets; /* documents + 1 */
    const void *terms;       /* uint16 or int32 */
    const uint8_t *impacts;
    int64_t documents, items, vocabulary;
    bool wide;
} Forward;

/* Flags of the pages of an array; NULL: all are verified. */
typedef struct {
    const uint8_t *verified;
    int64_t first; /* place of its first page among the flags */
    int64_t head;  /* byte of its first item in its file */
} Pages;

/* The arrays of one shard. */
typedef struct {
    const uint32_t *term_runs, *term_postings, *term_ids;
    const uint8_t *tenths, *hundredths; /* impacts of each term by rank */
    const uint16_t *run_windows, *run_counts, *ids;
    const uint8_t *impacts;
    const uint8_t *verified_terms; /* NULL: all */
    int64_t terms, runs, id_items, postings;
    Forward forward;
    Pages pages[3]; /* of offsets, terms and impacts of the forward copy */
} Shard;

/* One query; the caller keeps the arrays alive. */
typedef struct {
    const int32_t *ids;
    const float *weights;   /* score of one impact unit, 0 or more */
    const uint8_t *counted; /* 1 if the term counts towards `required`; NULL: all do */
    int64_t terms, required, k;
    int64_t dk;             /* terms of a document that have postings */
    float floor;            /* lowest score of a hit */
    float scan_share;       /* of what the terms can add to a score: that of the terms that are scanned; 1: all are */
    double deadline;        /* seconds of the monotonic clock; 0: none */
    const uint8_t *allowed; /* of each document; NULL: all */
    uint8_t *marks;         /* out: 1 for every match; NULL: not wanted */
    const void *names;      /* of the documents; NULL: not wanted */
    void (*read_name)(const void *names, int64_t document); /* lets the system read the place of one from a disk */
} Query;

/* One document that matches. */
typedef struct {
    float score;
    uint32_t document;
    uint16_t count; /* shared terms that count */
} Hit;

/* A document whose score may be high enough. */
typedef struct {
    uint32_t document;
    uint16_t sum;
} Candidate;

/* What was found in one shard; memory of the calling thread, valid until its next query. */
typedef struct {
    const Hit *hits;             /* the best documents, the best one first */
    const Candidate *unverified; /* documents whose vectors must be verified first */
    int64_t number;              /* of either */
    int64_t matched, postings;   /* matches, and postings read */
    bool from_disk;              /* pages seem to be read from a disk: ask for all that are needed at once */
} Found;

/* Let the system read the pages of some bytes, without a wait. */
void read_ahead(const void *bytes, int64_t size);

int match_shard(const Shard *shard, const Query *query, Found *found);

/* Impact of a term in the postings of a document; 0: it is not there, DAMAGED: the arrays contradict each other. */
int find_impact(const Shard *shard, int64_t term, int64_t document);

/* Scores of given documents, in float32 and in the query's order. */
int score_documents(const Forward *forward, const int64_t *documents, int64_t count, const Query *query, float *scores,
                    uint16_t *counts);

/* Choose the instruction set by name; NULL: the best one of this CPU. Returns its name, or NULL. */
const char *choose_instructions(const char *name);

int64_t workspace_bytes(void);

#endif
