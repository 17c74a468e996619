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

#include "int8_rows.h"

#include <vector>

namespace {

constexpr int64_t SLAB = 256;        // rows whose sums a thread keeps at once, 64 KiB
constexpr int64_t SERIAL = 1 << 14;  // numbers that one thread quantises by itself

// One row of x as it is multiplied.
template <class Number>
void put_row(const Number* x, int64_t inputs, uint8_t* to, int64_t stride) {
  const Scale found = scale_of(x, inputs);
  Int8Rows::put(x, inputs, found.times, to, stride);
  std::memcpy(to + stride - sizeof found.scale, &found.scale, sizeof found.scale);
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
  const int64_t size = padded(inputs), stride = Int8Rows::row_bytes(inputs);
  const Division slabs(rows, SLAB);
#pragma omp parallel for schedule(static) num_threads(static_cast<int>(threads)) if (rows * inputs > SERIAL)
  for (int64_t r = 0; r < rows; r++) put_row(x + r * inputs, inputs, work + r * stride, stride);
  for_parts((outputs + PANEL - 1) / PANEL, threads, [&](int64_t p) {
    alignas(64) int32_t sums[SLAB * PANEL], offsets[PANEL];
    const int8_t* panel = weights.panels + p * size * PANEL;
    const int64_t first = p * PANEL, count = std::min(PANEL, outputs - first);
    Int8Rows::panel_offsets(weights.totals + first, offsets);
    for (int64_t s = 0; s < slabs.parts; s++) {
      const int64_t begin = slabs.first(s);
      const auto read = [&](int64_t r, const int32_t* found) {
        const uint8_t* row = work + (begin + r) * stride;
        float scale;
        std::memcpy(&scale, row + stride - sizeof scale, sizeof scale);
        Int8Rows::row_offsets(row, stride, offsets);
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
      const Scale found = n < outputs ? scale_of(weight + n * inputs, inputs) : Scale{};
      scales[n] = found.scale;
      quantize(weight + n * inputs, inputs, found.times, 0, rows, size);
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
int64_t int8_row_bytes(int64_t inputs) { return Int8Rows::row_bytes(inputs); }

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
