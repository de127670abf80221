/* The loops over a window in every instruction set; sums are integers, so all of them give equal bits. */
#include "scan.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define X86
#include <immintrin.h>
#endif

#define LANES 32 /* products that are computed at once */

/* Names of one instruction set end in SET. */
#define PASTE(one, other) one##_##other
#define PASTE_SET(name, set) PASTE(name, set)
#define NAME(function) PASTE_SET(function, SET)
#define STRING(name) #name
#define STRING_OF(set) STRING(set)

#define ADD_IDS(ADDED)                                                                                     \
    uint16_t products[LANES] __attribute__((aligned(64)));                                                 \
    int64_t at = 0;                                                                                        \
    for (; at + LANES <= count; at += LANES) {                                                             \
        NAME(products)(products, impacts + at, weight);                                                          \
        _Pragma("GCC unroll 32") for (int i = 0; i < LANES; i++) cells[ids[at + i]] += ADDED(products[i]); \
    }                                                                                                      \
    for (; at < count; at++) cells[ids[at]] += ADDED(((uint32_t)impacts[at] * weight) >> 8);
#define ONLY(product) (uint16_t)(product)
#define WITH_UNIT(product) (unit + (product))
#define ADD_BITS(ADD, ...)                                           \
    int64_t at = 0, next;                                            \
    for (int64_t word = 0; word < words; word++, at = next) {        \
        uint64_t bits;                                               \
        memcpy(&bits, (const char *)bitmap + 8 * word, sizeof bits); \
        next = at + __builtin_popcountll(bits);                      \
        if (next > count) return false;                              \
        ADD(cells + 64 * word, bits, impacts + at, __VA_ARGS__);     \
    }                                                                \
    return at == count;

/* Bits of the documents that may be found, of up to 64. */
INLINE uint64_t allowed_bits(const uint8_t *allowed, int64_t size) {
    uint64_t bits = 0;
    if (size > 64) size = 64;
    for (int64_t i = 0; i < size; i++) bits |= (uint64_t)(allowed[i] != 0) << i;
    return bits;
}

/* Plain C, for every CPU. */
INLINE void products_plain(uint16_t *products, const uint8_t *impacts, uint16_t weight) {
    for (int i = 0; i < LANES; i++) products[i] = (uint16_t)(((uint32_t)impacts[i] * weight) >> 8);
}

INLINE void add_word_plain(uint16_t *cells, uint64_t bits, const uint8_t *impacts, uint16_t weight) {
    for (; bits; bits &= bits - 1) cells[__builtin_ctzll(bits)] += (uint16_t)(((uint32_t)*impacts++ * weight) >> 8);
}

INLINE void add_word_wide_plain(uint32_t *cells, uint64_t bits, const uint8_t *impacts, uint16_t weight, uint32_t unit) {
    for (; bits; bits &= bits - 1) cells[__builtin_ctzll(bits)] += unit + (((uint32_t)*impacts++ * weight) >> 8);
}

INLINE uint64_t reached_plain(const uint16_t *cells, uint16_t least) {
    uint64_t bits = 0;
    uint16_t any = 0;
    for (int i = 0; i < 64; i++) any |= cells[i] >= least;
    for (int i = 0; any && i < 64; i++) bits |= (uint64_t)(cells[i] >= least) << i;
    return bits;
}

#define present_plain(cells) reached_plain(cells, 1)

#define SET plain
#define TARGET
#include "window.h"

#ifdef X86
#define AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,popcnt")))
#define INLINE_AVX2 AVX2 INLINE
#define INLINE_AVX512 AVX512 INLINE

INLINE_AVX2 void products_avx2(uint16_t *products, const uint8_t *impacts, uint16_t weight) {
    const __m256i by = _mm256_set1_epi16((short)weight);
    for (int i = 0; i < LANES; i += 16) {
        __m256i v = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(impacts + i)));
        _mm256_store_si256((__m256i *)(products + i), _mm256_mulhi_epu16(_mm256_slli_epi16(v, 8), by));
    }
}

INLINE_AVX2 uint64_t reached_avx2(const uint16_t *cells, uint16_t least) {
    const __m256i limit = _mm256_set1_epi16((short)least);
    uint64_t bits = 0;
    for (int i = 0; i < 64; i += 32) {
        __m256i one = _mm256_load_si256((const __m256i *)(cells + i));
        __m256i two = _mm256_load_si256((const __m256i *)(cells + i + 16));
        __m256i both = _mm256_packs_epi16(_mm256_cmpeq_epi16(_mm256_max_epu16(one, limit), one),
                                          _mm256_cmpeq_epi16(_mm256_max_epu16(two, limit), two));
        both = _mm256_permute4x64_epi64(both, 0xd8); /* lanes of 128 bits were packed apart */
        bits |= (uint64_t)(uint32_t)_mm256_movemask_epi8(both) << i;
    }
    return bits;
}

#define present_avx2(cells) reached_avx2(cells, 1)
#define add_word_avx2 add_word_plain
#define add_word_wide_avx2 add_word_wide_plain

#define SET avx2
#define TARGET AVX2
#include "window.h"

INLINE_AVX512 void products_avx512(uint16_t *products, const uint8_t *impacts, uint16_t weight) {
    __m512i v = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)impacts));
    _mm512_store_si512(products, _mm512_mulhi_epu16(_mm512_slli_epi16(v, 8), _mm512_set1_epi16((short)weight)));
}

/* Impacts of 64 documents, 0 where there is none; reads no others. */
INLINE_AVX512 __m512i expanded(uint64_t bits, const uint8_t *impacts) {
    uint64_t read = _bzhi_u64(~(uint64_t)0, (unsigned)__builtin_popcountll(bits));
    return _mm512_maskz_expand_epi8(bits, _mm512_maskz_loadu_epi8(read, impacts));
}

/* Products of the 32 documents of one half. The order of bytes puts an impact above a zero: it is the impact times 256.
 * Impacts are not widened in a register, which some CPUs do slowly. */
INLINE_AVX512 __m512i products_of_half(__m512i impacts, int64_t half, uint16_t weight) {
    const __m512i first = _mm512_set_epi64(0x1f001e001d001c00, 0x1b001a0019001800, 0x1700160015001400,
                                           0x1300120011001000, 0x0f000e000d000c00, 0x0b000a0009000800,
                                           0x0700060005000400, 0x0300020001000000);
    const __m512i order = half ? _mm512_add_epi16(first, _mm512_set1_epi16(0x2000)) : first;
    __m512i high = _mm512_maskz_permutexvar_epi8(0xaaaaaaaaaaaaaaaa, order, impacts);
    return _mm512_mulhi_epu16(high, _mm512_set1_epi16((short)weight));
}

INLINE_AVX512 void add_word_avx512(uint16_t *cells, uint64_t bits, const uint8_t *impacts, uint16_t weight) {
    __m512i v = expanded(bits, impacts);
    for (int64_t half = 0; half < 2; half++) {
        __m512i sum = _mm512_load_si512(cells + 32 * half);
        _mm512_store_si512(cells + 32 * half, _mm512_add_epi16(sum, products_of_half(v, half, weight)));
    }
}

INLINE_AVX512 void add_word_wide_avx512(uint32_t *cells, uint64_t bits, const uint8_t *impacts, uint16_t weight,
                                        uint32_t unit) {
    __m512i v = expanded(bits, impacts), units = _mm512_set1_epi32((int)unit);
    __m512i halves[2] = {products_of_half(v, 0, weight), products_of_half(v, 1, weight)};
    for (int i = 0; i < 4; i++) {
        __m512i half = halves[i / 2], sum = _mm512_load_si512(cells + 16 * i);
        __m256i quarter = i % 2 ? _mm512_extracti64x4_epi64(half, 1) : _mm512_castsi512_si256(half);
        sum = _mm512_add_epi32(sum, _mm512_cvtepu16_epi32(quarter));
        _mm512_store_si512(cells + 16 * i, _mm512_mask_add_epi32(sum, (__mmask16)(bits >> 16 * i), sum, units));
    }
}

INLINE_AVX512 uint64_t reached_avx512(const uint16_t *cells, uint16_t least) {
    const __m512i limit = _mm512_set1_epi16((short)least);
    uint64_t low = _mm512_cmpge_epu16_mask(_mm512_load_si512(cells), limit);
    return low | (uint64_t)_mm512_cmpge_epu16_mask(_mm512_load_si512(cells + 32), limit) << 32;
}

INLINE_AVX512 uint64_t present_avx512(const uint16_t *cells) {
    __m512i low = _mm512_load_si512(cells), high = _mm512_load_si512(cells + 32);
    return (uint64_t)_mm512_test_epi16_mask(low, low) | (uint64_t)_mm512_test_epi16_mask(high, high) << 32;
}

/* The sweep of a query without a mask: matches are counted in 32 lanes; returns their number. */
AVX512 static int64_t sweep_unmasked_avx512(Scan *scan, uint16_t *cells, int64_t first, int64_t size) {
    const __m512i one = _mm512_set1_epi16(1), zero = _mm512_setzero_si512();
    __m512i least = _mm512_set1_epi16((short)scan->least), counts = zero;
    uint16_t lanes[32] __attribute__((aligned(64)));
    int64_t matched = 0;
    for (int64_t place = 0; place < size; place += 64) {
        __m512i low = _mm512_load_si512(cells + place), high = _mm512_load_si512(cells + place + 32);
        counts = _mm512_add_epi16(counts, _mm512_add_epi16(_mm512_min_epu16(low, one), _mm512_min_epu16(high, one)));
        if (_mm512_cmpge_epu16_mask(_mm512_max_epu16(low, high), least)) {
            offer_candidates(scan, first + place, reached_avx512(cells + place, (uint16_t)scan->least));
            least = _mm512_set1_epi16((short)scan->least);
        }
        _mm512_store_si512(cells + place, zero), _mm512_store_si512(cells + place + 32, zero);
    }
    _mm512_store_si512(lanes, counts);
    for (int i = 0; i < 32; i++) matched += lanes[i];
    return matched;
}

#define SWEEP_UNMASKED
#define SET avx512
#define TARGET AVX512
#include "window.h"
#endif

const Instructions *instructions = &instructions_plain;

const char *choose_instructions(const char *name) {
    const Instructions *usable[3];
    int number = 0;
#ifdef X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("bmi2"))
        usable[number++] = &instructions_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) usable[number++] = &instructions_avx2;
#endif
    usable[number++] = &instructions_plain;
    for (int i = 0; i < number; i++)
        if (!name || !strcmp(name, usable[i]->name)) {
            instructions = usable[i];
            return instructions->name;
        }
    return NULL;
}
