// Products with weights in 16 bits, for processors with AVX2, AVX-512 or AMX.
//
// A step of one row reads every weight once and computes two operations with it: its bound is the
// memory. So weights are read in the order in which they lie, and each is used for all rows while
// it is in a register or in the nearest cache.
//
// Weights [outputs, inputs] in bfloat16 lie in panels of 64 outputs; in a panel, pairs of inputs
// follow one another, and of each pair the 64 outputs. It is oneDNN's layout (BA16a64b2a) where there
// is no AMX, so that its products of many rows can read the same memory.
//
//   panel p:  | w[64p][0] w[64p][1] | w[64p+1][0] w[64p+1][1] | ... | w[64p+63][1] |   inputs 0, 1
//             | w[64p][2] w[64p][3] | ...                                          |   inputs 2, 3
//
// A row's sum runs over the inputs in their order, whatever rows are beside it: a row alone has the
// same bits as the row in a batch.
//
// Compiled at first use with -march=native (build.py), against the OpenMP that torch has loaded.

#include "amx.h"
#include "words.h"

namespace {

constexpr int64_t SLAB = LANES == 16 ? 256 : 80;  // rows whose sums of a panel are kept
constexpr int64_t SERIAL = 1 << 14;  // numbers that one thread widens by itself

// Rows in float32. Of each group of rows, all numbers of an input follow one another.
struct Float32Rows {
  using Row = float;
  using Weight = uint16_t;
  using Sum = float;
  using Tiles = void;
  // Up to 24 sums of 32, or 12 of 16, are in registers together. Weights must be widened for each
  // group, so many rows are in groups as large as can be. A single row has as many outputs as there
  // are, because each sum waits for the one before.
  static constexpr int GROUP = LANES == 16 ? 12 : 5;
  static constexpr int columns(int rows) {
    if (LANES == 16) return rows <= 6 ? 64 : 32;
    return rows == 1 ? 64 : rows == 2 ? 32 : 16;
  }
  static int64_t at(int64_t stride, int64_t row, int64_t rows, int64_t step) {
    return row * stride + 2 * step * rows;
  }

  template <int ROWS>
  static void add(const Row* x, int64_t, int64_t steps, const Weight* panel, Sum* sums,
                  Ahead& ahead) {
    constexpr int WIDE = columns(ROWS) / LANES;
    for (int64_t column = 0; column < PANEL; column += WIDE * LANES) {
      Vector sum[ROWS][WIDE];
      each<ROWS>([&](auto r) INLINE {
        each<WIDE>([&](auto j) INLINE { sum[r][j] = load(sums + r * PANEL + column + j * LANES); });
      });
      const Weight* at = panel + 2 * column;
      const Row* numbers = x;
      for (int64_t begin = 0; begin < steps; begin += ahead.span) {
        ahead.fetch();
        const int64_t end = std::min(begin + ahead.span, steps);
        for (int64_t step = begin; step < end; step++, at += 2 * PANEL, numbers += 2 * ROWS) {
          Vector weights[WIDE];
          each<WIDE>([&](auto j) INLINE { weights[j] = evens(load_pairs(at + 2 * j * LANES)); });
          each<ROWS>([&](auto r) INLINE {
            const Vector number = spread(numbers[r]);
            each<WIDE>([&](auto j) INLINE { sum[r][j] = fma(number, weights[j], sum[r][j]); });
          });
          each<WIDE>([&](auto j) INLINE { weights[j] = odds(load_pairs(at + 2 * j * LANES)); });
          each<ROWS>([&](auto r) INLINE {
            const Vector number = spread(numbers[ROWS + r]);
            each<WIDE>([&](auto j) INLINE { sum[r][j] = fma(number, weights[j], sum[r][j]); });
          });
        }
      }
      each<ROWS>([&](auto r) INLINE {
        each<WIDE>([&](auto j) INLINE { store(sums + r * PANEL + column + j * LANES, sum[r][j]); });
      });
    }
  }
};

#if defined(__AVX512BF16__)
// Rows in bfloat16, by the processor's own products of pairs.
struct BFloat16Rows {
  using Row = uint16_t;
  using Weight = uint16_t;
  using Sum = float;
  using Tiles = BFloat16Tiles;
  static constexpr int GROUP = 6;
  static constexpr int columns(int) { return PANEL; }
  static int64_t at(int64_t stride, int64_t row, int64_t, int64_t step) {
    return row * stride + 2 * step;
  }

  template <int ROWS>
  static void add(const Row* x, int64_t stride, int64_t steps, const Weight* panel, Sum* sums,
                  Ahead& ahead) {
    __m512 sum[ROWS][4];
    each<ROWS>([&](auto r) INLINE {
      each<4>([&](auto j) INLINE { sum[r][j] = load(sums + r * PANEL + j * LANES); });
    });
    for (int64_t begin = 0; begin < steps; begin += ahead.span) {
      ahead.fetch();
      const int64_t end = std::min(begin + ahead.span, steps);
      for (int64_t step = begin; step < end; step++, panel += 2 * PANEL) {
        __m512bh weights[4];
        each<4>([&](auto j) INLINE { weights[j] = (__m512bh)load_pairs(panel + 32 * j); });
        each<ROWS>([&](auto r) INLINE {
          int32_t pair;
          std::memcpy(&pair, x + r * stride + 2 * step, sizeof pair);
          const __m512bh both = (__m512bh)_mm512_set1_epi32(pair);
          each<4>([&](auto j) INLINE {
            sum[r][j] = _mm512_dpbf16_ps(sum[r][j], both, weights[j]);
          });
        });
      }
    }
    each<ROWS>([&](auto r) INLINE {
      each<4>([&](auto j) INLINE { store(sums + r * PANEL + j * LANES, sum[r][j]); });
    });
  }
};
#endif

// One group of rows [rows, inputs] as Float32Rows reads it: [inputs, rows].
template <class E>
void widen_group(const typename E::Number* x, int64_t rows, int64_t inputs, float* to) {
  for (int64_t k = 0; k < inputs; k += LANES) {
    const int64_t some = std::min<int64_t>(LANES, inputs - k);
    Vector columns[LANES] = {};
    for (int64_t r = 0; r < rows; r++) columns[r] = get<E>(x + r * inputs + k, some);
    if (rows == 1) {
      put<Float32>(to + k, columns[0], some);
      continue;
    }
    transpose(columns);
    for (int64_t i = 0; i < some; i++) {
      float* at = to + (k + i) * rows;
      // What is written too much, the next inputs write over. The last ones must not do it.
      if ((inputs - k - i) * rows >= LANES) store(at, columns[i]);
      else put<Float32>(at, columns[i], rows);
    }
  }
}

// All rows, in the groups that add_groups makes of them.
template <class E>
void widen_rows(const typename E::Number* x, int64_t rows, int64_t inputs, float* to,
                int64_t threads) {
  constexpr int64_t MOST = (SLAB + Float32Rows::GROUP - 1) / Float32Rows::GROUP;  // groups of a slab
  const Division slabs(rows, SLAB);
#pragma omp parallel for schedule(static) num_threads(static_cast<int>(threads)) if (rows * inputs > SERIAL)
  for (int64_t i = 0; i < slabs.parts * MOST; i++) {
    const int64_t s = i / MOST, g = i % MOST;
    const Division groups(slabs.size(s), Float32Rows::GROUP);
    if (g >= groups.parts) continue;
    const int64_t first = (slabs.first(s) + groups.first(g)) * inputs;
    widen_group<E>(x + first, groups.size(g), inputs, to + first);
  }
}

// E: of the result.
template <class Kind, class E>
void product(const typename Kind::Row* x, int64_t rows, int64_t inputs, int64_t outputs,
             const uint16_t* weights, const typename E::Number* bias, typename E::Number* y,
             int64_t threads) {
  const Division slabs(rows, SLAB);
  for_parts(outputs / PANEL, threads, [&](int64_t p) {
    alignas(64) float sums[SLAB * PANEL];
    const uint16_t* panel = weights + p * inputs * PANEL;
    for (int64_t s = 0; s < slabs.parts; s++) {
      const int64_t first = slabs.first(s);
      const auto read = [&](int64_t r, const float* sums) {
        for (int64_t i = 0; i < PANEL; i += LANES) {
          const Vector found = load(sums + i);
          E::put(y + (first + r) * outputs + p * PANEL + i,
                 bias ? found + E::get(bias + p * PANEL + i) : found);
        }
      };
      multiply_rows<Kind>(x + first * inputs, inputs, slabs.size(s), inputs / 2, panel, sums, s == 0,
                          s + 1 == slabs.parts, read);
    }
  }, release_tiles);
}

}  // namespace

extern "C" {

// weight [outputs, inputs] as it is multiplied: panels of as many bytes; inputs even, outputs a
// multiple of 64.
void half_pack(const uint16_t* weight, int64_t outputs, int64_t inputs, uint16_t* panels,
               int64_t threads) {
#pragma omp parallel for schedule(static) num_threads(static_cast<int>(threads))
  for (int64_t p = 0; p < outputs / PANEL; p++)
    put_panel(reinterpret_cast<const float*>(weight + p * PANEL * inputs), inputs / 2, inputs / 2,
              reinterpret_cast<float*>(panels + p * PANEL * inputs));
}

// y = x W^T + bias. x [rows, inputs], y [rows, outputs]; inputs even, outputs a multiple of 64; bias
// [outputs] or null; work [rows, inputs].
void product_float32(const float* x, int64_t rows, int64_t inputs, int64_t outputs,
                     const uint16_t* weights, const float* bias, float* y, float* work,
                     int64_t threads) {
  widen_rows<Float32>(x, rows, inputs, work, threads);
  product<Float32Rows, Float32>(work, rows, inputs, outputs, weights, bias, y, threads);
}

// Rows in bfloat16, multiplied in float32. Some processors multiply twice as many numbers a second
// so as they have products of pairs in bfloat16.
void product_widened(const uint16_t* x, int64_t rows, int64_t inputs, int64_t outputs,
                     const uint16_t* weights, const uint16_t* bias, uint16_t* y, float* work,
                     int64_t threads) {
  widen_rows<BFloat16>(x, rows, inputs, work, threads);
  product<Float32Rows, BFloat16>(work, rows, inputs, outputs, weights, bias, y, threads);
}

// Whether there is one for rows in bfloat16 that stay so.
int has_bfloat16() {
#if defined(__AVX512BF16__)
  return 1;
#else
  return 0;
#endif
}

// Rows in bfloat16 or in 8 bits that are multiplied at once, whether there are as many or not.
int rows_at_once() { return AMX ? 2 * SIDE : 1; }

void product_bfloat16(const uint16_t* x, int64_t rows, int64_t inputs, int64_t outputs,
                      const uint16_t* weights, const uint16_t* bias, uint16_t* y, float*,
                      int64_t threads) {
#if defined(__AVX512BF16__)
  product<BFloat16Rows, BFloat16>(x, rows, inputs, outputs, weights, bias, y, threads);
#endif
}
}

RECORDABLE(product_float32)
RECORDABLE(product_widened)
RECORDABLE(product_bfloat16)
