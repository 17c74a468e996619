// Rows of x in 8 bits, and how a group of them is multiplied with a panel of weights (Int8Rows).
//
// A quantised row is its inputs, a byte each, and last of all its scale as a float. For AVX2 alone it
// comes in parts (Int8Rows::Part), and before its scale is 128 x the sum of its inputs.

#pragma once

#include "amx.h"
#include "words.h"

#include <algorithm>
#include <numeric>

namespace {

constexpr int64_t FOUR = 4;      // inputs of a group
constexpr float LEAST = 1e-30f;  // a row without a larger magnitude is zero

inline float wide(float x) { return x; }
inline float wide(uint16_t x) { return widen(x); }

inline int64_t padded(int64_t inputs) { return (inputs + FOUR - 1) / FOUR * FOUR; }

// Of one row: its scale, and what its numbers are multiplied by. If a number is not finite, NaN and 0.
struct Scale {
  float scale, times;
};

template <class Number>
Scale scale_of(const Number* x, int64_t inputs) {
  uint32_t largest = 0;  // as bits, whose order is that of magnitudes, NaN last
  for (int64_t k = 0; k < inputs; k++) {
    float number = wide(x[k]);
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    largest = std::max(largest, bits & 0x7fffffff);
  }
  float most;
  std::memcpy(&most, &largest, sizeof most);
  if (largest >= 0x7f800000) return {__builtin_nanf(""), 0.0f};
  if (most < LEAST) return {0.0f, 0.0f};
  return {most / 127.0f, 127.0f / most};
}

// Numbers of a row in [-127, 127], each plus `offset`, and as many more zeros as `size` says.
template <class Number>
void quantize(const Number* x, int64_t count, float times, int offset, uint8_t* to, int64_t size) {
  int64_t k = 0;
  for (; times != 0.0f && k < count; k++) {
    // Adding 1.5 x 2^23 rounds to the nearest integer, which is then in the low bits.
    float shifted = wide(x[k]) * times + 12582912.0f;
    int32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    to[k] = static_cast<uint8_t>(bits - 0x4b400000 + offset);
  }
  std::memset(to + k, offset, size - k);
}

struct Int8Rows {
  using Row = uint8_t;
  using Weight = int8_t;
  using Sum = int32_t;
  using Tiles = Int8Tiles;
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
  // The instruction multiplies unsigned by signed numbers: rows are kept 128 higher, and 128 x the
  // sum of an output's weights is taken off again.
  static constexpr int GROUP = 6;  // rows whose sums are in registers together
  static constexpr int columns(int) { return PANEL; }

  static int64_t at(int64_t stride, int64_t row, int64_t, int64_t step) {
    return row * stride + FOUR * step;
  }

  // Rows begin with lines of the cache, so that a tile of them has as few as can be.
  static int64_t row_bytes(int64_t inputs) {
    return (padded(inputs) + LINE - 1) / LINE * LINE + LINE;
  }

  template <class Number>
  static void put(const Number* x, int64_t inputs, float times, Row* to, int64_t) {
    quantize(x, inputs, times, 128, to, padded(inputs));
  }

  // What sums have too much: for all rows, by the totals of the weights; and for one row.
  static void panel_offsets(const int32_t* totals, int32_t* found) {
    for (int64_t i = 0; i < PANEL; i++) found[i] = 128 * totals[i];
  }
  static void row_offsets(const Row*, int64_t, int32_t*) {}

  template <int ROWS>
  static void add(const Row* x, int64_t stride, int64_t steps, const Weight* panel, Sum* sums,
                  Ahead& ahead) {
    __m512i sum[ROWS][4];
    each<ROWS>([&](auto r) INLINE {
      each<4>([&](auto j) INLINE { sum[r][j] = _mm512_loadu_si512(sums + r * PANEL + j * 16); });
    });
    for (int64_t begin = 0; begin < steps; begin += ahead.span) {
      ahead.fetch();
      const int64_t end = std::min(begin + ahead.span, steps);
      for (int64_t step = begin; step < end; step++, panel += FOUR * PANEL) {
        __m512i weights[4];
        each<4>([&](auto j) INLINE {
          weights[j] = _mm512_loadu_si512(panel + 64 * j);
          // In a register: as an operand from memory it would be loaded anew for every row.
          asm("" : "+v"(weights[j]));
        });
        each<ROWS>([&](auto r) INLINE {
          int32_t four;
          std::memcpy(&four, x + r * stride + FOUR * step, sizeof four);
          const __m512i all = _mm512_set1_epi32(four);
          each<4>([&](auto j) INLINE {
            sum[r][j] = _mm512_dpbusd_epi32(sum[r][j], all, weights[j]);
          });
        });
      }
    }
    each<ROWS>([&](auto r) INLINE {
      each<4>([&](auto j) INLINE { _mm512_storeu_si512(sums + r * PANEL + j * 16, sum[r][j]); });
    });
  }
#else
  // The instruction multiplies unsigned by signed numbers and adds two products in 16 bits. Weights
  // are made 128 higher in a register, and 128 x the sum of a row is taken off again. Two products
  // fit if the two numbers of the row have a sum of at most 128: 255 x 128 = 32640. Of other pairs,
  // which are rare, the row has what fits (SMALL), and the rest is multiplied by itself. Three vector
  // instructions do 32 products; with the row's signs on the weights, which always fit, they were four.
  static constexpr int GROUP = 5;
  static constexpr int columns(int rows) { return rows == 1 ? 64 : rows == 2 ? 32 : 16; }
  static constexpr int64_t STEPS = CHUNK / STEP;
  static_assert(CHUNK == LARGE, "a part of a row goes with each chunk of a panel");
  static constexpr int SMALL = 64, PAIR = 2 * SMALL;
  static constexpr int AT_ONCE = 4;  // groups of a rest: their number is hard to foresee

  // What of a row is multiplied with a chunk of a panel.
  struct Part {
    uint8_t numbers[FOUR * STEPS];
    int32_t rest[STEPS];   // groups of what the numbers lack
    uint8_t steps[STEPS];  // where each of these belongs
    int32_t count;         // of them, rounded up to AT_ONCE with zeros
  };

  static int64_t at(int64_t stride, int64_t row, int64_t, int64_t step) {
    return row * stride + step / STEPS * sizeof(Part);
  }

  static int64_t row_bytes(int64_t inputs) {
    const int64_t parts = (padded(inputs) + FOUR * STEPS - 1) / (FOUR * STEPS);
    return parts * sizeof(Part) + sizeof(int32_t) + sizeof(float);
  }

  template <class Number>
  static void put(const Number* x, int64_t inputs, float times, Row* to, int64_t stride) {
    int32_t total = 0;
    Part* part = reinterpret_cast<Part*>(to);
    for (int64_t k = 0; k < inputs; k += FOUR * STEPS, part++) {
      quantize(x + k, std::min(FOUR * STEPS, inputs - k), times, 0, part->numbers, FOUR * STEPS);
      total += split(*part);
    }
    total *= 128;
    std::memcpy(to + stride - sizeof(float) - sizeof total, &total, sizeof total);
  }

  // Leaves of each pair what fits. Returns the sum of all numbers.
  static int32_t split(Part& part) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i total = _mm256_setzero_si256();
    int32_t count = 0;
    for (int64_t k = 0; k < FOUR * STEPS; k += 32) {
      const __m256i numbers = _mm256_loadu_si256((const __m256i*)(part.numbers + k));
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), numbers);
      total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, ones));
      // Only two numbers of one sign have so large a sum. Others fit whatever they are.
      const __m256i large = _mm256_cmpgt_epi16(_mm256_abs_epi16(pairs), _mm256_set1_epi16(PAIR));
      const auto found = static_cast<uint32_t>(_mm256_movemask_epi8(large));
      for (int64_t i = 0; found && i < 32; i += FOUR)
        if (found >> i & 0xf) {
          auto* four = reinterpret_cast<int8_t*>(part.numbers + k + i);
          int8_t rest[FOUR];
          for (int64_t n = 0; n < FOUR; n++) {
            const int kept = std::clamp<int>(four[n], -SMALL, SMALL);
            rest[n] = static_cast<int8_t>(four[n] - kept);
            four[n] = static_cast<int8_t>(kept);
          }
          std::memcpy(&part.rest[count], rest, sizeof rest);
          part.steps[count++] = static_cast<uint8_t>((k + i) / FOUR);
        }
    }
    for (; count % AT_ONCE; count++) part.rest[count] = part.steps[count] = 0;
    part.count = count;
    int32_t sums[8];
    _mm256_storeu_si256((__m256i*)sums, total);
    return std::accumulate(sums, sums + 8, 0);
  }

  static void panel_offsets(const int32_t*, int32_t*) {}
  static void row_offsets(const Row* row, int64_t stride, int32_t* found) {
    int32_t total;
    std::memcpy(&total, row + stride - sizeof(float) - sizeof total, sizeof total);
    std::fill_n(found, PANEL, total);
  }

  static __m256i four_at(const void* at) {
    int32_t four;
    std::memcpy(&four, at, sizeof four);
    return _mm256_set1_epi32(four);
  }

  static __m256i raised(const Weight* at) {
    return _mm256_xor_si256(_mm256_loadu_si256((const __m256i*)at), _mm256_set1_epi8(-128));
  }

  static void add_to(__m256i& sum, __m256i weights, __m256i four) {
    const __m256i pairs = _mm256_maddubs_epi16(weights, four);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }

  template <int ROWS>
  static void add(const Row* x, int64_t stride, int64_t steps, const Weight* panel, Sum* sums,
                  Ahead& ahead) {
    constexpr int WIDE = columns(ROWS) / 8;  // vectors of 8 outputs
    const auto part = [&](auto r) INLINE { return reinterpret_cast<const Part*>(x + r * stride); };
    for (int64_t column = 0; column < PANEL; column += WIDE * 8) {
      __m256i sum[ROWS][WIDE];
      each<ROWS>([&](auto r) INLINE {
        each<WIDE>([&](auto j) INLINE {
          sum[r][j] = _mm256_loadu_si256((const __m256i*)(sums + r * PANEL + column + j * 8));
        });
      });
      const Weight* const chunk = panel + FOUR * column;
      const Weight* at = chunk;
      for (int64_t begin = 0; begin < steps; begin += ahead.span) {
        ahead.fetch();
        const int64_t end = std::min(begin + ahead.span, steps);
        for (int64_t step = begin; step < end; step++, at += FOUR * PANEL) {
          __m256i weights[WIDE];
          each<WIDE>([&](auto j) INLINE { weights[j] = raised(at + 32 * j); });
          each<ROWS>([&](auto r) INLINE {
            const __m256i four = four_at(part(r)->numbers + FOUR * step);
            each<WIDE>([&](auto j) INLINE { add_to(sum[r][j], weights[j], four); });
          });
        }
      }
      each<ROWS>([&](auto r) INLINE {
        for (int64_t i = 0; i < part(r)->count; i += AT_ONCE)
          each<AT_ONCE>([&](auto n) INLINE {
            const __m256i four = four_at(part(r)->rest + i + n);
            const Weight* const of = chunk + FOUR * PANEL * part(r)->steps[i + n];
            each<WIDE>([&](auto j) INLINE { add_to(sum[r][j], raised(of + 32 * j), four); });
          });
        each<WIDE>([&](auto j) INLINE {
          _mm256_storeu_si256((__m256i*)(sums + r * PANEL + column + j * 8), sum[r][j]);
        });
      });
    }
  }
#endif
};

}  // namespace
