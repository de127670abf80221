/* The shards of an open version, searched one after another. */
#ifndef LSR_PROD_VERSION_H
#define LSR_PROD_VERSION_H

#include "kernels.h"

/* The ids of some documents that follow each other: a column of Arrow. */
typedef struct {
    const int64_t *offsets;
    const char *text;
    int64_t documents, size; /* bytes of the text */
} Names;

typedef struct {
    Shard *shard;
    int64_t number;          /* in the version */
    const uint8_t *alive;    /* of each document; NULL: all */
    const Names *names;      /* of each batch of `batch` documents */
    const uint8_t *verified; /* of each batch; NULL: all */
    int64_t batches, batch;
} Member;

typedef struct {
    Member *members;
    int64_t count;
} Version;

/* One document of a version. */
typedef struct {
    Hit hit;
    int64_t member;
    const char *name;
    int64_t length;
} Row;

typedef struct {
    Row *rows; /* the best first; the caller frees them */
    int64_t number, matched;
    int64_t failed; /* the member that ended the search */
    Found found;    /* in that member; UNVERIFIED: its terms, its documents `unverified`, or the ids of its hits */
} Merged;

/* Search all members. `allowed` has the documents that may be found of each member, or NULL; `named`: with ids. */
int search_version(const Version *version, const Query *query, const uint8_t *const *allowed, bool named,
                   Merged *merged);

/* Find the id of a document; returns the state. */
int find_name(const Version *version, int64_t member, int64_t document, const char **name, int64_t *length);

#endif
