// What a layer does with each token between its products. Each token by itself, so a row's result
// does not depend on the other rows. Results are rounded to the tensors' type where torch's
// operators round (layers/).

#include <cmath>
#include <vector>

#include "vectors.h"
#include "words.h"

namespace {

constexpr int64_t LEAST = 1 << 14;  // numbers from which a second thread pays

// A norm over a row, or none: weights are null.
template <class W>
struct Norm {
  const typename W::Number* weights;
  float eps;
};

template <class E>
float squares(const typename E::Number* row, int64_t size) {
  Vector found = spread(0.0f);
  for (int64_t i = 0; i < size; i += LANES) {
    Vector x = get<E>(row + i, size - i);
    found = fma(x, x, found);
  }
  return sum(found);
}

// By the root mean square; rounded to the weights' type, weighted, rounded to it, and to its own.
template <class E, class W>
Vector normed(Vector x, float inverse, const typename W::Number* weights, int64_t left) {
  Vector weighted = W::rounded(x * spread(inverse)) * get<W>(weights, left);
  return E::rounded(W::rounded(weighted));
}

float inverse_root(float squares, int64_t size, float eps) {
  return 1.0f / std::sqrt(squares / static_cast<float>(size) + eps);
}

// total = x + scale after(found); normed = before(total). Without found, total is not written.
template <class E, class W>
void add_norm_row(const typename E::Number* x, const typename E::Number* found,
                  typename E::Number* total, typename E::Number* out, int64_t size, Norm<W> after,
                  Norm<W> before, float scale) {
  Vector sums = spread(0.0f);
  if (found) {
    float inverse =
        after.weights ? inverse_root(squares<E>(found, size), size, after.eps) : 1.0f;
    for (int64_t i = 0; i < size; i += LANES) {
      Vector added = get<E>(found + i, size - i);
      if (after.weights) added = normed<E, W>(added, inverse, after.weights + i, size - i);
      Vector value = E::rounded(fma(added, spread(scale), get<E>(x + i, size - i)));
      put<E>(total + i, value, size - i);
      sums = fma(value, value, sums);
    }
    x = total;
  }
  if (!before.weights) return;
  float inverse = inverse_root(found ? sum(sums) : squares<E>(x, size), size, before.eps);
  for (int64_t i = 0; i < size; i += LANES) {
    Vector value = get<E>(x + i, size - i);
    put<E>(out + i, normed<E, W>(value, inverse, before.weights + i, size - i), size - i);
  }
}

template <class E, class W>
void add_norms(const void* x, int64_t x_stride, const void* found, void* total, void* out,
               int64_t out_stride, int64_t rows, int64_t size, const void* after,
               const void* before, float eps, float scale, int64_t threads) {
  using T = typename E::Number;
  using V = const typename W::Number*;
  bool alone = rows * size < LEAST;
#pragma omp parallel for if (!alone) num_threads(static_cast<int>(threads))
  for (int64_t r = 0; r < rows; r++)
    add_norm_row<E, W>(static_cast<const T*>(x) + r * x_stride,
                       found ? static_cast<const T*>(found) + r * size : nullptr,
                       static_cast<T*>(total) + r * size, static_cast<T*>(out) + r * out_stride,
                       size, Norm<W>{static_cast<V>(after), eps},
                       Norm<W>{static_cast<V>(before), eps}, scale);
}

// What is the same for all heads of a call.
template <class E, class W>
struct Heads {
  int64_t heads, kv_heads, size, pairs;  // pairs of dimensions that turn; 0: none
  const typename W::Number *q_weights, *k_weights;  // of the norms over each head; null: none
  float eps;
  const typename E::Number *cosines, *sines;  // [positions, pairs]
};

// One head in float32, each number one of E's: normed, and turned by the angles of a position.
template <class E, class W>
void norm_and_turn(float* head, const Heads<E, W>& of, const typename W::Number* weights,
                   int64_t position) {
  int64_t size = of.size, pairs = of.pairs;
  if (weights) {
    float inverse = inverse_root(squares<Float32>(head, size), size, of.eps);
    for (int64_t i = 0; i < size; i += LANES)
      put<Float32>(head + i, normed<E, W>(get<Float32>(head + i, size - i), inverse, weights + i,
                                          size - i),
                   size - i);
  }
  const auto* cosines = of.cosines + position * pairs;
  const auto* sines = of.sines + position * pairs;
  for (int64_t i = 0; i < pairs; i += LANES) {
    int64_t left = pairs - i;
    Vector cosine = get<E>(cosines + i, left), sine = get<E>(sines + i, left);
    Vector a = get<Float32>(head + i, left), b = get<Float32>(head + pairs + i, left);
    Vector first = E::rounded(a * cosine) - E::rounded(b * sine);
    Vector second = E::rounded(b * cosine) + E::rounded(a * sine);
    put<Float32>(head + i, first, left);
    put<Float32>(head + pairs + i, second, left);
  }
}

// One token's heads: queries to a tensor, keys and values to a cell of the KV memory, which must
// never hold what is not finite.
template <class E, class W>
void take_token_in(const typename E::Number* qkv, const Heads<E, W>& of, int64_t position,
                   typename E::Number* q, typename E::Number* keys, typename E::Number* values) {
  int64_t size = of.size, turning = of.heads + of.kv_heads;
  thread_local std::vector<float> head;
  head.resize(size);
  for (int64_t h = 0; h < turning + of.kv_heads; h++, qkv += size) {
    bool query = h < of.heads;
    for (int64_t i = 0; i < size; i += LANES) {
      Vector x = get<E>(qkv + i, size - i);
      put<Float32>(head.data() + i, query ? x : finite(x), size - i);
    }
    if (h < turning)
      norm_and_turn<E, W>(head.data(), of, query ? of.q_weights : of.k_weights, position);
    auto* to = query ? q + h * size
                     : (h < turning ? keys + (h - of.heads) * size : values + (h - turning) * size);
    for (int64_t i = 0; i < size; i += LANES)
      put<E>(to + i, get<Float32>(head.data() + i, size - i), size - i);
  }
}

template <class E, class W>
void take_all_in(const void* qkv, int64_t rows, const int64_t* shape, const void* q_weights,
                 const void* k_weights, float eps, const void* cosines, const void* sines,
                 const int64_t* positions, const int64_t* cells, void* q, void* keys, void* values,
                 int64_t threads) {
  using T = typename E::Number;
  using V = const typename W::Number*;
  Heads<E, W> of{shape[0], shape[1], shape[2], shape[3], static_cast<V>(q_weights),
                 static_cast<V>(k_weights), eps, static_cast<const T*>(cosines),
                 static_cast<const T*>(sines)};
  int64_t wide = (of.heads + 2 * of.kv_heads) * of.size, kv = of.kv_heads * of.size;
  bool alone = rows * wide < LEAST;
#pragma omp parallel for if (!alone) num_threads(static_cast<int>(threads))
  for (int64_t r = 0; r < rows; r++)
    take_token_in<E, W>(static_cast<const T*>(qkv) + r * wide, of, positions[r],
                        static_cast<T*>(q) + r * of.heads * of.size,
                        static_cast<T*>(keys) + cells[r] * kv,
                        static_cast<T*>(values) + cells[r] * kv);
}

// x sigmoid(z), where z is x for silu; and for gelu by tanh, x / 2 (1 + tanh(y)) = x sigmoid(2 y).
template <class E>
void gate(const typename E::Number* wide, typename E::Number* out, int64_t begin, int64_t end,
          int64_t size, bool silu) {
  for (int64_t i = begin; i < end; i += LANES) {
    Vector x = get<E>(wide + i, end - i), up = get<E>(wide + size + i, end - i), z = x;
    if (!silu)
      z = spread(1.5957691216057308f) * fma(x * x * x, spread(0.044715f), x);
    Vector acted = E::rounded(x / (spread(1.0f) + exponential(spread(0.0f) - z)));
    put<E>(out + i, acted * up, end - i);
  }
}

template <class E>
void gates(const void* wide, void* out, int64_t rows, int64_t size, bool silu, int64_t threads) {
  using T = typename E::Number;
  constexpr int64_t part = 2048;  // numbers, for one thread
  int64_t parts = (size + part - 1) / part;
  bool alone = rows * size < LEAST;
#pragma omp parallel for if (!alone) num_threads(static_cast<int>(threads))
  for (int64_t i = 0; i < rows * parts; i++) {
    int64_t r = i / parts, begin = i % parts * part;
    gate<E>(static_cast<const T*>(wide) + r * 2 * size, static_cast<T*>(out) + r * size, begin,
            std::min(begin + part, size), size, silu);
  }
}

}  // namespace

// Numbers are in bfloat16 if `narrow`, else in float32; weights of norms in float32 if `wide`.
extern "C" {

// x [rows, size], with x_stride numbers from a row to the next; found [rows, size] or null; total
// [rows, size], x itself if found is null; out [rows, size]. after and before [size] or null.
void add_norm(int narrow, int wide, const void* x, int64_t x_stride, const void* found, void* total,
              void* out, int64_t out_stride, int64_t rows, int64_t size, const void* after,
              const void* before, float eps, float scale, int64_t threads) {
  auto call = !narrow ? add_norms<Float32, Float32>
              : wide  ? add_norms<BFloat16, Float32>
                      : add_norms<BFloat16, BFloat16>;
  call(x, x_stride, found, total, out, out_stride, rows, size, after, before, eps, scale, threads);
}

// qkv [rows, heads + 2 kv_heads, size]; shape: heads, kv_heads, size, pairs; places: the addresses of
// positions and of cells [rows]; q [rows, heads, size]; keys and values [cells, kv_heads, size].
void take_in(int narrow, int wide, const void* qkv, int64_t rows, const int64_t* shape,
             const void* q_weights, const void* k_weights, float eps, const void* cosines,
             const void* sines, const int64_t* const* places, void* q, void* keys, void* values,
             int64_t threads) {
  auto call = !narrow ? take_all_in<Float32, Float32>
              : wide  ? take_all_in<BFloat16, Float32>
                      : take_all_in<BFloat16, BFloat16>;
  call(qkv, rows, shape, q_weights, k_weights, eps, cosines, sines, places[0], places[1], q, keys,
       values, threads);
}

// wide [rows, 2 size]: gate, up; out [rows, size].
void gate_up(int narrow, const void* wide, void* out, int64_t rows, int64_t size, int silu,
             int64_t threads) {
  (narrow ? gates<BFloat16> : gates<Float32>)(wide, out, rows, size, silu != 0, threads);
}
}

RECORDABLE(add_norm)
RECORDABLE(take_in)
RECORDABLE(gate_up)
