/* The loops over a window for one instruction set; window.c includes this file once for each of them, with the macros
 * TARGET, NAME, PRODUCTS, ADD_WORD, ADD_WORD_WIDE, REACHED and PRESENT. */

TARGET static bool NAME(are_below)(const uint16_t *ids, int64_t count, int64_t size) {
    uint16_t largest = 0;
    for (int64_t at = 0; at < count; at++) largest = ids[at] > largest ? ids[at] : largest;
    return largest < size;
}

TARGET static int64_t NAME(count)(const void *bitmap, int64_t words) {
    int64_t count = 0;
    for (int64_t word = 0; word < words; word++) {
        uint64_t bits;
        memcpy(&bits, (const char *)bitmap + 8 * word, sizeof bits);
        count += __builtin_popcountll(bits);
    }
    return count;
}

#define ADD_IDS(ADDED)                                                                                     \
    uint16_t products[LANES] __attribute__((aligned(64)));                                                 \
    int64_t at = 0;                                                                                        \
    for (; at + LANES <= count; at += LANES) {                                                             \
        PRODUCTS(products, impacts + at, weight);                                                          \
        _Pragma("GCC unroll 32") for (int i = 0; i < LANES; i++) cells[ids[at + i]] += ADDED(products[i]); \
    }                                                                                                      \
    for (; at < count; at++) cells[ids[at]] += ADDED(((uint32_t)impacts[at] * weight) >> 8);

#define ONLY(product) (uint16_t)(product)
#define WITH_UNIT(product) (unit + (product))

TARGET static void NAME(add_ids)(uint16_t *cells, const uint16_t *ids, const uint8_t *impacts, int64_t count,
                                 uint16_t weight){ADD_IDS(ONLY)}

TARGET static void NAME(add_ids_wide)(uint32_t *cells, const uint16_t *ids, const uint8_t *impacts, int64_t count,
                                      uint16_t weight, uint32_t unit){ADD_IDS(WITH_UNIT)}
#define ADD_BITS(ADD, ...)                                               \
    int64_t at = 0;                                                      \
    for (int64_t word = 0; word < words; word++) {                       \
        uint64_t bits;                                                   \
        int64_t number;                                                  \
        memcpy(&bits, (const char *)bitmap + 8 * word, sizeof bits);     \
        number = __builtin_popcountll(bits);                             \
        if (at + number > count) return false;                           \
        ADD(cells + 64 * word, bits, number, impacts + at, __VA_ARGS__); \
        at += number;                                                    \
    }                                                                    \
    return at == count;

TARGET static bool NAME(add_bits)(uint16_t *cells, const void *bitmap, int64_t words, const uint8_t *impacts,
                                  int64_t count, uint16_t weight){ADD_BITS(ADD_WORD, weight)}

TARGET static bool NAME(add_bits_wide)(uint32_t *cells, const void *bitmap, int64_t words, const uint8_t *impacts,
                                       int64_t count, uint16_t weight,
                                       uint32_t unit){ADD_BITS(ADD_WORD_WIDE, weight, unit)}

TARGET static void NAME(sweep)(Scan *scan, int64_t first, int64_t size) {
    uint16_t *cells = (uint16_t *)scan->memory->cells;
    const uint8_t *allowed = scan->query->allowed;
    int64_t matched = 0, place = 0;
#ifdef SWEEP_PLAIN
    if (!allowed && !scan->query->marks) {
        scan->found->matched += SWEEP_PLAIN(scan, cells, first, size);
        return;
    }
#endif
    for (; place < size; place += 64) {
        uint64_t present = PRESENT(cells + place);
        if (allowed) present &= allowed_bits(allowed + first + place, size - place);
        matched += __builtin_popcountll(present);
        if (scan->query->marks && present) mark_matches(scan, first + place, present);
        present &= REACHED(cells + place, (uint16_t)scan->least);
        if (present) offer_candidates(scan, first + place, present);
        memset(cells + place, 0, 64 * sizeof *cells);
    }
    scan->found->matched += matched;
}

TARGET static void NAME(sweep_wide)(Scan *scan, int64_t first, int64_t size) {
    uint32_t *cells = scan->memory->cells;
    /* No document shares more terms than a query can have. */
    uint32_t enough = scan->query->required > UINT16_MAX ? UINT32_MAX : (uint32_t)scan->query->required << 16;
    const uint8_t *allowed = scan->query->allowed;
    for (int64_t place = 0; place < size; place += 64) {
        uint32_t any = 0;
        for (int64_t i = 0; i < 64; i++) any |= cells[place + i] >= enough;
        if (any) {
            uint64_t present = 0, reached = 0;
            for (int64_t i = 0; i < 64; i++) {
                present |= (uint64_t)(cells[place + i] >= enough) << i;
                reached |= (uint64_t)((cells[place + i] & 0xffff) >= (uint32_t)scan->least) << i;
            }
            if (allowed) present &= allowed_bits(allowed + first + place, size - place);
            scan->found->matched += __builtin_popcountll(present);
            if (scan->query->marks && present) mark_matches(scan, first + place, present);
            present &= reached;
            if (present) offer_candidates(scan, first + place, present);
        }
        memset(cells + place, 0, 64 * sizeof *cells);
    }
}

static const Instructions NAME(instructions) = {
    NAME_OF_SET,    NAME(are_below),     NAME(count),   NAME(add_ids),      NAME(add_ids_wide),
    NAME(add_bits), NAME(add_bits_wide), NAME(sweep),   NAME(sweep_wide),
};

#undef TARGET
#undef NAME
#undef NAME_OF_SET
#undef PRODUCTS
#undef ADD_WORD
#undef ADD_WORD_WIDE
#undef REACHED
#undef PRESENT
#undef SWEEP_PLAIN
#undef ADD_IDS
#undef ADD_BITS
#undef ONLY
#undef WITH_UNIT
