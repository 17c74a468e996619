// Products with weights in 16 bits, for processors with AVX2 or AVX-512.
//
// A step of one row reads every weight once and computes two operations with it: its bound is the
// memory. So weights are read in the order in which they lie, and each is used for all rows while
// it is in a register or in the nearest cache.
//
// Weights [outputs, inputs] in bfloat16 lie in panels of 64 outputs; in a panel, pairs of inputs
// follow one another, and of each pair the 64 outputs. It is oneDNN's layout (BA16a64b2a), so that
// its products of many rows read the same memory.
//
//   panel p:  | w[64p][0] w[64p][1] | w[64p+1][0] w[64p+1][1] | ... | w[64p+63][1] |   inputs 0, 1
//             | w[64p][2] w[64p][3] | ...                                          |   inputs 2, 3
//
// A row's sum runs over the inputs in their order, whatever rows are beside it: a row alone has the
// same bits as the row in a batch.
//
// Compiled at first use with -march=native (build.py), against the OpenMP that torch has loaded.

#include "vectors.h"

namespace {

constexpr int64_t PANEL = 64;    // outputs
constexpr int64_t CHUNK = 1024;  // inputs: a panel's chunk, 128 KiB, stays in the second cache
constexpr int64_t SLAB = 48;     // rows whose sums of a panel are kept: eight groups
constexpr int GROUP = 6;         // rows whose sums are in registers together

// How many vectors of outputs so many rows have in registers together: up to 24 sums of 32, or 12 of
// 16. A single row has as many as there are, because each sum waits for the one before.
constexpr int wide(int rows) { return LANES == 16 ? 4 : rows == 1 ? 8 : rows == 2 ? 4 : 2; }

// Rows in float32. sums: [rows][PANEL], where this chunk's are added.
struct Float32Rows {
  using Row = float;
  using Result = float;

  template <int ROWS>
  static void add(const Row* x, int64_t stride, int64_t inputs, const uint16_t* panel,
                  float* sums) {
    constexpr int WIDE = wide(ROWS);
    for (int64_t column = 0; column < PANEL; column += WIDE * LANES) {
      Vector sum[ROWS][WIDE];
      for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < WIDE; j++) sum[r][j] = load(sums + r * PANEL + column + j * LANES);
      const uint16_t* at = panel + 2 * column;
      for (int64_t k = 0; k < inputs; k += 2, at += 2 * PANEL) {
        Vector weights[WIDE];
        if (LANES == 16) fetch_ahead(at, WIDE);
        for (int j = 0; j < WIDE; j++) weights[j] = evens(load_pairs(at + 2 * j * LANES));
        for (int r = 0; r < ROWS; r++)
          for (int j = 0; j < WIDE; j++)
            sum[r][j] = fma(spread(x[r * stride + k]), weights[j], sum[r][j]);
        for (int j = 0; j < WIDE; j++) weights[j] = odds(load_pairs(at + 2 * j * LANES));
        for (int r = 0; r < ROWS; r++)
          for (int j = 0; j < WIDE; j++)
            sum[r][j] = fma(spread(x[r * stride + k + 1]), weights[j], sum[r][j]);
      }
      for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < WIDE; j++) store(sums + r * PANEL + column + j * LANES, sum[r][j]);
    }
  }

  static void put(const float* sums, const float* bias, float* y, int64_t count) {
    for (int64_t i = 0; i < count; i++) y[i] = sums[i] + (bias ? bias[i] : 0.0f);
  }
};

// Rows that were widened to float32, for a result in bfloat16. Some processors multiply twice as
// many numbers a second in float32 as they have products of pairs in bfloat16.
struct WidenedRows : Float32Rows {
  using Result = uint16_t;

  static void put(const float* sums, const uint16_t* bias, uint16_t* y, int64_t count) {
    for (int64_t i = 0; i < count; i++) y[i] = narrow(sums[i] + (bias ? widen(bias[i]) : 0.0f));
  }
};

#if defined(__AVX512BF16__)
// Rows in bfloat16, by the processor's own products of pairs.
struct BFloat16Rows {
  using Row = uint16_t;
  using Result = uint16_t;

  template <int ROWS>
  static void add(const Row* x, int64_t stride, int64_t inputs, const uint16_t* panel,
                  float* sums) {
    __m512 sum[ROWS][4];
    for (int r = 0; r < ROWS; r++)
      for (int j = 0; j < 4; j++) sum[r][j] = _mm512_loadu_ps(sums + r * PANEL + j * 16);
    for (int64_t k = 0; k < inputs; k += 2, panel += 2 * PANEL) {
      __m512bh weights[4];
      fetch_ahead(panel, 4);
      for (int j = 0; j < 4; j++) weights[j] = (__m512bh)_mm512_loadu_si512(panel + 32 * j);
      for (int r = 0; r < ROWS; r++) {
        int32_t pair;
        std::memcpy(&pair, x + r * stride + k, sizeof pair);
        __m512bh both = (__m512bh)_mm512_set1_epi32(pair);
        for (int j = 0; j < 4; j++) sum[r][j] = _mm512_dpbf16_ps(sum[r][j], both, weights[j]);
      }
    }
    for (int r = 0; r < ROWS; r++)
      for (int j = 0; j < 4; j++) _mm512_storeu_ps(sums + r * PANEL + j * 16, sum[r][j]);
  }

  static constexpr auto put = WidenedRows::put;
};
#endif

template <class Kind>
void add_rows(int rows, const typename Kind::Row* x, int64_t stride, int64_t inputs,
              const uint16_t* panel, float* sums) {
  switch (rows) {
    case 1: return Kind::template add<1>(x, stride, inputs, panel, sums);
    case 2: return Kind::template add<2>(x, stride, inputs, panel, sums);
    case 3: return Kind::template add<3>(x, stride, inputs, panel, sums);
    case 4: return Kind::template add<4>(x, stride, inputs, panel, sums);
    case 5: return Kind::template add<5>(x, stride, inputs, panel, sums);
    default: return Kind::template add<6>(x, stride, inputs, panel, sums);
  }
}

template <class Kind>
void product(const typename Kind::Row* x, int64_t rows, int64_t inputs, int64_t outputs,
             const uint16_t* weights, const typename Kind::Result* bias,
             typename Kind::Result* y, int64_t threads) {
#pragma omp parallel for schedule(static) num_threads(static_cast<int>(threads))
  for (int64_t p = 0; p < outputs / PANEL; p++) {
    alignas(64) float sums[SLAB * PANEL];
    const uint16_t* panel = weights + p * inputs * PANEL;
    for (int64_t first = 0; first < rows; first += SLAB) {
      int64_t some = std::min(SLAB, rows - first);
      std::memset(sums, 0, some * PANEL * sizeof(float));
      for (int64_t k = 0; k < inputs; k += CHUNK) {
        int64_t count = std::min(CHUNK, inputs - k);
        for (int64_t r = 0; r < some; r += GROUP)
          add_rows<Kind>(static_cast<int>(std::min<int64_t>(GROUP, some - r)),
                         x + (first + r) * inputs + k, inputs, count, panel + k * PANEL,
                         sums + r * PANEL);
      }
      for (int64_t r = 0; r < some; r++)
        Kind::put(sums + r * PANEL, bias ? bias + p * PANEL : nullptr,
                  y + (first + r) * outputs + p * PANEL, PANEL);
    }
  }
}

}  // namespace

extern "C" {

// y = x W^T + bias. x [rows, inputs], y [rows, outputs]; inputs even, outputs a multiple of 64; bias
// [outputs] or null.
void product_float32(const float* x, int64_t rows, int64_t inputs, int64_t outputs,
                     const uint16_t* weights, const float* bias, float* y, int64_t threads) {
  product<Float32Rows>(x, rows, inputs, outputs, weights, bias, y, threads);
}

// x in float32; bias and y in bfloat16.
void product_widened(const float* x, int64_t rows, int64_t inputs, int64_t outputs,
                     const uint16_t* weights, const uint16_t* bias, uint16_t* y, int64_t threads) {
  product<WidenedRows>(x, rows, inputs, outputs, weights, bias, y, threads);
}

// Whether there is one for rows in bfloat16 that stay so.
int has_bfloat16() {
#if defined(__AVX512BF16__)
  return 1;
#else
  return 0;
#endif
}

void product_bfloat16(const uint16_t* x, int64_t rows, int64_t inputs, int64_t outputs,
                      const uint16_t* weights, const uint16_t* bias, uint16_t* y,
                      int64_t threads) {
#if defined(__AVX512BF16__)
  product<BFloat16Rows>(x, rows, inputs, outputs, weights, bias, y, threads);
#endif
}
}
