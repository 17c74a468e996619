// Products with weights in 8 bits: y = x W^T + bias, for any number of rows.
//
// Each output channel of W has one scale, and each row of x gets its own at every call: the largest
// magnitude / 127, ties to even. Sums of products of such integers are exact in 32 bits, so a row
// alone has the same bits as the row in a batch, and every processor finds the same.
//
// Weights lie in panels of 64 outputs. In a panel groups of four inputs follow one another, and of
// each group the 64 outputs. Inputs are padded with zeros to a multiple of 4, outputs to one of 64.
//
//   panel p:  | w[64p][0..3]  | w[64p+1][0..3]  | ... | w[64p+63][0..3]  |   inputs 0 to 3
//             | w[64p][4..7]  | ...                                      |   inputs 4 to 7
//
// A quantised row is its inputs, a byte each, for AVX2 alone their magnitudes too, and last of all its
// scale as a float.

#include "amx.h"
#include "words.h"

#include <cstdlib>
#include <vector>

namespace {

constexpr int64_t FOUR = 4;         // inputs of a group
constexpr int64_t SLAB = 256;       // rows whose sums a thread keeps at once, 64 KiB
constexpr int64_t SERIAL = 1 << 14;  // numbers that one thread quantises by itself
constexpr float LEAST = 1e-30f;     // a row without a larger magnitude is zero

inline float wide(float x) { return x; }
inline float wide(uint16_t x) { return widen(x); }

inline int64_t padded(int64_t inputs) { return (inputs + FOUR - 1) / FOUR * FOUR; }

// One row in [-127, 127], each number plus `offset`. Returns its scale: NaN, with zeros, if a number
// is not finite.
template <class Number>
float quantize(const Number* x, int64_t inputs, int offset, uint8_t* to) {
  uint32_t largest = 0;  // as bits, whose order is that of magnitudes, NaN last
  for (int64_t k = 0; k < inputs; k++) {
    float number = wide(x[k]);
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    largest = std::max(largest, bits & 0x7fffffff);
  }
  float most;
  std::memcpy(&most, &largest, sizeof most);
  bool finite = largest < 0x7f800000;
  if (!finite || most < LEAST) {
    std::memset(to, offset, padded(inputs));
    return finite ? 0.0f : __builtin_nanf("");
  }
  const float times = 127.0f / most;
  for (int64_t k = 0; k < inputs; k++) {
    // Adding 1.5 x 2^23 rounds to the nearest integer, which is then in the low bits.
    float shifted = wide(x[k]) * times + 12582912.0f;
    int32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    to[k] = static_cast<uint8_t>(bits - 0x4b400000 + offset);
  }
  for (int64_t k = inputs; k < padded(inputs); k++) to[k] = static_cast<uint8_t>(offset);
  return most / 127.0f;
}

struct Int8Rows {
  using Row = uint8_t;
  using Weight = int8_t;
  using Sum = int32_t;
  using Tiles = Int8Tiles;
  static int64_t at(int64_t stride, int64_t row, int64_t, int64_t step) {
    return row * stride + FOUR * step;
  }

#if defined(__AVX512VNNI__) && defined(__AVX512F__)
  // The instruction multiplies unsigned by signed numbers: rows are kept 128 higher, and 128 x the
  // sum of an output's weights is taken off again.
  static constexpr int OFFSET = 128;
  static constexpr bool MAGNITUDES = false;
  static constexpr int GROUP = 6;  // rows whose sums are in registers together
  static constexpr int columns(int) { return PANEL; }

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
  // The instruction multiplies unsigned by signed numbers and adds two products in 16 bits: magnitudes
  // of the row by weights with the row's signs, at most 2 x 127 x 127 = 32258. Vectors of integers are
  // the bound, so magnitudes are found once and not for each panel.
  static constexpr int OFFSET = 0;
  static constexpr bool MAGNITUDES = true;
  static constexpr int GROUP = 5;
  static constexpr int columns(int rows) { return rows == 1 ? 64 : rows == 2 ? 32 : 16; }

  static __m256i four_at(const Row* at) {
    int32_t four;
    std::memcpy(&four, at, sizeof four);
    return _mm256_set1_epi32(four);
  }

  template <int ROWS>
  static void add(const Row* x, int64_t stride, int64_t steps, const Weight* panel, Sum* sums,
                  Ahead& ahead) {
    constexpr int WIDE = columns(ROWS) / 8;  // vectors of 8 outputs
    const Row* magnitudes = x + (stride - sizeof(float)) / 2;
    const __m256i ones = _mm256_set1_epi16(1);
    for (int64_t column = 0; column < PANEL; column += WIDE * 8) {
      __m256i sum[ROWS][WIDE];
      each<ROWS>([&](auto r) INLINE {
        each<WIDE>([&](auto j) INLINE {
          sum[r][j] = _mm256_loadu_si256((const __m256i*)(sums + r * PANEL + column + j * 8));
        });
      });
      const Weight* at = panel + FOUR * column;
      for (int64_t begin = 0; begin < steps; begin += ahead.span) {
        ahead.fetch();
        const int64_t end = std::min(begin + ahead.span, steps);
        for (int64_t step = begin; step < end; step++, at += FOUR * PANEL) {
          each<ROWS>([&](auto r) INLINE {
            const __m256i all = four_at(x + r * stride + FOUR * step);
            const __m256i positive = four_at(magnitudes + r * stride + FOUR * step);
            each<WIDE>([&](auto j) INLINE {
              const __m256i weights = _mm256_loadu_si256((const __m256i*)(at + 32 * j));
              const __m256i pairs =
                  _mm256_maddubs_epi16(positive, _mm256_sign_epi8(weights, all));
              sum[r][j] = _mm256_add_epi32(sum[r][j], _mm256_madd_epi16(pairs, ones));
            });
          });
        }
      }
      each<ROWS>([&](auto r) INLINE {
        each<WIDE>([&](auto j) INLINE {
          _mm256_storeu_si256((__m256i*)(sums + r * PANEL + column + j * 8), sum[r][j]);
        });
      });
    }
  }
#endif
};

// Rows begin with lines of the cache, so that a tile of them has as few as can be.
int64_t row_bytes(int64_t inputs) {
  if (Int8Rows::MAGNITUDES) return padded(inputs) * 2 + sizeof(float);
  return (padded(inputs) + LINE - 1) / LINE * LINE + LINE;
}

// One row of x as it is multiplied.
template <class Number>
void put_row(const Number* x, int64_t inputs, uint8_t* to) {
  const int64_t size = padded(inputs);
  const float scale = quantize(x, inputs, Int8Rows::OFFSET, to);
  if (Int8Rows::MAGNITUDES)
    for (int64_t k = 0; k < size; k++)
      to[size + k] = static_cast<uint8_t>(std::abs(static_cast<int8_t>(to[k])));
  std::memcpy(to + row_bytes(inputs) - sizeof scale, &scale, sizeof scale);
}

// The numbers of one row and panel. Nothing is contracted to a fused operation (build.py), so that
// the reference in torch finds the same bits.
template <class E>
void finish(const int32_t* sums, const int32_t* offsets, float scale, const float* scales,
            const typename E::Number* bias, typename E::Number* y, int64_t count) {
  for (int64_t i = 0; i < count; i += LANES) {
    const Vector found = differences(sums + i, offsets + i) * spread(scale) * load(scales + i);
    put<E>(y + i, bias ? found + get<E>(bias + i, count - i) : found, count - i);
  }
}

// Packed weights: panels, and of each output, padded ones included, scale and sum of its weights.
struct Weights {
  const int8_t* panels;
  const float* scales;
  const int32_t* totals;
};

template <class E>
void product(const typename E::Number* x, int64_t rows, int64_t inputs, int64_t outputs,
             Weights weights, const typename E::Number* bias, typename E::Number* y, uint8_t* work,
             int64_t threads) {
  const int64_t size = padded(inputs), stride = row_bytes(inputs);
  const Division slabs(rows, SLAB);
#pragma omp parallel for schedule(static) num_threads(static_cast<int>(threads)) if (rows * inputs > SERIAL)
  for (int64_t r = 0; r < rows; r++) put_row(x + r * inputs, inputs, work + r * stride);
  for_parts((outputs + PANEL - 1) / PANEL, threads, [&](int64_t p) {
    alignas(64) int32_t sums[SLAB * PANEL], offsets[PANEL];
    const int8_t* panel = weights.panels + p * size * PANEL;
    const int64_t first = p * PANEL, count = std::min(PANEL, outputs - first);
    for (int64_t i = 0; i < PANEL; i++) offsets[i] = Int8Rows::OFFSET * weights.totals[first + i];
    for (int64_t s = 0; s < slabs.parts; s++) {
      const int64_t begin = slabs.first(s);
      const auto read = [&](int64_t r, const int32_t* found) {
        float scale;
        std::memcpy(&scale, work + (begin + r + 1) * stride - sizeof scale, sizeof scale);
        finish<E>(found, offsets, scale, weights.scales + first, bias ? bias + first : nullptr,
                  y + (begin + r) * outputs + first, count);
      };
      multiply_rows<Int8Rows>(work + begin * stride, stride, slabs.size(s), size / FOUR, panel, sums,
                              s == 0, s + 1 == slabs.parts, read);
    }
  }, release_tiles);
}

template <class Number>
void pack(const Number* weight, int64_t outputs, int64_t inputs, int8_t* panels, float* scales,
          int32_t* totals, int64_t threads) {
  const int64_t size = padded(inputs);
#pragma omp parallel for schedule(static) num_threads(static_cast<int>(threads))
  for (int64_t p = 0; p < (outputs + PANEL - 1) / PANEL; p++) {
    std::vector<float> words(PANEL * size / FOUR);
    auto* rows = reinterpret_cast<uint8_t*>(words.data());
    for (int64_t j = 0; j < PANEL; j++, rows += size) {
      const int64_t n = p * PANEL + j;
      scales[n] = n < outputs ? quantize(weight + n * inputs, inputs, 0, rows) : 0.0f;
      int32_t total = 0;
      for (int64_t k = 0; k < size; k++) total += static_cast<int8_t>(rows[k]);
      totals[n] = total;
    }
    put_panel(words.data(), size / FOUR, size / FOUR,
              reinterpret_cast<float*>(panels + p * PANEL * size));
  }
}

}  // namespace

extern "C" {

// panels [outputs / 64, rounded up][inputs / 4, rounded up][64][4]; scales and totals are as long
// as the panels' outputs.
void int8_pack_float32(const float* weight, int64_t outputs, int64_t inputs, int8_t* panels,
                       float* scales, int32_t* totals, int64_t threads) {
  pack(weight, outputs, inputs, panels, scales, totals, threads);
}

void int8_pack_bfloat16(const uint16_t* weight, int64_t outputs, int64_t inputs, int8_t* panels,
                        float* scales, int32_t* totals, int64_t threads) {
  pack(weight, outputs, inputs, panels, scales, totals, threads);
}

// Bytes of `work` for each row.
int64_t int8_row_bytes(int64_t inputs) { return row_bytes(inputs); }

// x [rows, inputs], y [rows, outputs], bias [outputs] or null; work [rows, int8_row_bytes(inputs)].
void int8_product_float32(const float* x, int64_t rows, int64_t inputs, int64_t outputs,
                          const int8_t* panels, const float* scales, const int32_t* totals,
                          const float* bias, float* y, uint8_t* work, int64_t threads) {
  product<Float32>(x, rows, inputs, outputs, {panels, scales, totals}, bias, y, work, threads);
}

void int8_product_bfloat16(const uint16_t* x, int64_t rows, int64_t inputs, int64_t outputs,
                           const int8_t* panels, const float* scales, const int32_t* totals,
                           const uint16_t* bias, uint16_t* y, uint8_t* work, int64_t threads) {
  product<BFloat16>(x, rows, inputs, outputs, {panels, scales, totals}, bias, y, work, threads);
}
}

RECORDABLE(int8_product_float32)
RECORDABLE(int8_product_bfloat16)
