#include "workspace.h"

#include <pthread.h>
#include <stdlib.h>

#define ARRAYS 5
#define LOOK_EVERY 1024 /* queries */
#define MUCH_MORE 4

static const size_t item_sizes[ARRAYS] = {sizeof(Cursor), sizeof(Candidate), sizeof(Hit), sizeof(uint16_t),
                                          sizeof(uint8_t)};
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_key;

static void release(void *pointer) {
    Workspace *m = pointer;
    for (int i = 0; i < ARRAYS; i++) free(m->arrays[i]);
    free(m);
}

static void create_key(void) {
    has_key = pthread_key_create(&key, release) == 0;
}

static Workspace *of_thread(void) {
    Workspace *memory;
    pthread_once(&once, create_key);
    if (!has_key) return NULL;
    memory = pthread_getspecific(key);
    if (memory) return memory;
    memory = aligned_alloc(64, (sizeof *memory + 63) / 64 * 64);
    if (!memory) return NULL;
    memset(memory, 0, sizeof *memory);
    if (pthread_setspecific(key, memory) == 0) return memory;
    free(memory);
    return NULL;
}

/* Replace an array by a new one of `items` items, zeros. */
static bool renew(Workspace *m, int i, int64_t items) {
    free(m->arrays[i]);
    m->arrays[i] = calloc((size_t)(items ? items : 1), item_sizes[i]);
    m->sizes[i] = m->arrays[i] ? items : 0;
    return m->arrays[i] != NULL;
}

Workspace *workspace_of_thread(int64_t terms, int64_t candidates, int64_t k, int64_t vocabulary) {
    Workspace *m = of_thread();
    const int64_t needed[ARRAYS] = {terms, candidates, k, vocabulary, terms + 1};
    bool look, whole = true;
    if (!m) return NULL;
    look = ++m->calls >= LOOK_EVERY;
    for (int i = 0; i < ARRAYS; i++) {
        if (needed[i] > m->most[i]) m->most[i] = needed[i];
        if (look && m->sizes[i] > MUCH_MORE * m->most[i]) whole &= renew(m, i, m->most[i]);
        if (!m->arrays[i] || m->sizes[i] < needed[i]) whole &= renew(m, i, needed[i]);
        if (look) m->most[i] = 0;
    }
    if (look) m->calls = 0;
    m->cursors = m->arrays[0], m->candidates = m->arrays[1], m->hits = m->arrays[2];
    m->slots = m->arrays[3], m->found = m->arrays[4];
    return whole ? m : NULL;
}

int64_t workspace_bytes(void) {
    Workspace *m = of_thread();
    int64_t bytes = m ? (int64_t)sizeof *m : 0;
    for (int i = 0; m && i < ARRAYS; i++) bytes += m->sizes[i] * (int64_t)item_sizes[i];
    return bytes;
}
