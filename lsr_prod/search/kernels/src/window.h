/* The loops over a window for one instruction set, SET; window.c includes this file once for each of them. */

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

TARGET static void NAME(add_ids)(uint16_t *cells, const uint16_t *ids, const uint8_t *impacts, int64_t count,
                                 uint16_t weight){ADD_IDS(ONLY)}

TARGET static void NAME(add_ids_wide)(uint32_t *cells, const uint16_t *ids, const uint8_t *impacts, int64_t count,
                                      uint16_t weight, uint32_t unit){ADD_IDS(WITH_UNIT)}

TARGET static bool NAME(add_bits)(uint16_t *cells, const void *bitmap, int64_t words, const uint8_t *impacts,
                                  int64_t count, uint16_t weight){ADD_BITS(NAME(add_word), weight)}

TARGET static bool NAME(add_bits_wide)(uint32_t *cells, const void *bitmap, int64_t words, const uint8_t *impacts,
                                       int64_t count, uint16_t weight,
                                       uint32_t unit){ADD_BITS(NAME(add_word_wide), weight, unit)}

TARGET static void NAME(sweep)(Scan *scan, int64_t first, int64_t size) {
    uint16_t *cells = (uint16_t *)scan->memory->cells;
    const uint8_t *allowed = scan->query->allowed;
    int64_t matched = 0, place = 0;
#ifdef SWEEP_UNMASKED
    if (!allowed && !scan->query->marks) {
        scan->found->matched += NAME(sweep_unmasked)(scan, cells, first, size);
        return;
    }
#endif
    for (; place < size; place += 64) {
        uint64_t present = NAME(present)(cells + place);
        if (allowed) present &= allowed_bits(allowed + first + place, size - place);
        matched += __builtin_popcountll(present);
        if (scan->query->marks && present) mark_matches(scan, first + place, present);
        present &= NAME(reached)(cells + place, (uint16_t)scan->least);
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
    STRING_OF(SET), NAME(are_below),     NAME(count), NAME(add_ids),    NAME(add_ids_wide),
    NAME(add_bits), NAME(add_bits_wide), NAME(sweep), NAME(sweep_wide),
};

#undef SET
#undef TARGET
