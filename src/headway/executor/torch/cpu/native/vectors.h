// Vectors of float32 of the widest kind that this processor has, and numbers in bfloat16.
//
// Element types: Float32 and BFloat16. `get` widens to float32, `put` rounds to the nearest, ties to
// even. The last numbers of a row may be fewer than a vector: `left` says how many there are.

#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#define INLINE __attribute__((always_inline))

namespace {

// f(0), f(1), ...: each number is a constant, so that arrays of vectors stay in registers. GCC keeps
// them in memory where it unrolls their loops late.
template <class F, int... I>
inline INLINE void each_of(F f, std::integer_sequence<int, I...>) {
  (f(std::integral_constant<int, I>{}), ...);
}
template <int COUNT, class F>
inline INLINE void each(F f) {
  each_of(f, std::make_integer_sequence<int, COUNT>{});
}

inline float widen(uint16_t x) {
  uint32_t bits = static_cast<uint32_t>(x) << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

// To the nearest, ties to even. A NaN stays one.
inline uint16_t narrow(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 64);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#if defined(__AVX512F__)
using Vector = __m512;
constexpr int LANES = 16;
inline Vector load(const float* at) { return _mm512_loadu_ps(at); }
inline void store(float* at, Vector x) { _mm512_storeu_ps(at, x); }
inline Vector spread(float x) { return _mm512_set1_ps(x); }
inline Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
inline Vector larger(Vector a, Vector b) { return _mm512_max_ps(a, b); }
inline Vector smaller(Vector a, Vector b) { return _mm512_min_ps(a, b); }
inline float sum(Vector x) { return _mm512_reduce_add_ps(x); }
inline float largest(Vector x) { return _mm512_reduce_max_ps(x); }
inline Vector to_whole(Vector x) { return _mm512_roundscale_ps(x, 0); }
inline Vector times_power_of_two(Vector x, Vector whole) { return _mm512_scalef_ps(x, whole); }
// 0 where x is NaN or infinite.
inline Vector finite(Vector x) {
  __mmask16 is = _mm512_cmp_ps_mask(_mm512_sub_ps(x, x), _mm512_setzero_ps(), _CMP_EQ_OQ);
  return _mm512_maskz_mov_ps(is, x);
}
// x in the lanes from `begin` to `end`, `other` elsewhere.
inline Vector between(int64_t begin, int64_t end, Vector x, Vector other) {
  const auto before = [](int64_t lane) {
    return (1u << std::clamp<int64_t>(lane, 0, LANES)) - 1;
  };
  return _mm512_mask_mov_ps(other, static_cast<__mmask16>(before(end) & ~before(begin)), x);
}
inline Vector load_wide(const uint16_t* at) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
// To the nearest number in bfloat16, as narrow does it.
inline Vector rounded_narrow(Vector x) {
  const __m512i bits = _mm512_castps_si512(x), kept = _mm512_set1_epi32(0xffff0000);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i found = _mm512_and_si512(_mm512_add_epi32(bits, half), kept);
  const __m512i quiet = _mm512_or_si512(_mm512_and_si512(bits, kept), _mm512_set1_epi32(64 << 16));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(found, nan, quiet));
}
inline void store_narrow(uint16_t* at, Vector x) {
#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
  // The instruction makes zeros of numbers that are not normal: those take the other way.
  if (!_mm512_fpclass_ps_mask(x, 0x20))
    return _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), (__m256i)_mm512_cvtneps_pbh(x));
#endif
  const __m512i high = _mm512_srli_epi32(_mm512_castps_si512(rounded_narrow(x)), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtepi32_epi16(high));
}
inline Vector low_pairs(Vector a, Vector b) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
inline Vector high_pairs(Vector a, Vector b) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
inline Vector low(Vector a, Vector b) { return _mm512_unpacklo_ps(a, b); }
inline Vector high(Vector a, Vector b) { return _mm512_unpackhi_ps(a, b); }
// Column j of a group of four rows lies in quarters of r[j]: those of all groups become one vector.
inline void gather_quarters(Vector* r) {
  for (int j = 0; j < 4; j++) {
    Vector a = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88);
    Vector b = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xdd);
    Vector c = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88);
    Vector d = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xdd);
    r[j] = _mm512_shuffle_f32x4(a, c, 0x88), r[4 + j] = _mm512_shuffle_f32x4(b, d, 0x88);
    r[8 + j] = _mm512_shuffle_f32x4(a, c, 0xdd), r[12 + j] = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
}
using Pairs = __m512i;
inline Pairs load_pairs(const uint16_t* at) { return _mm512_loadu_si512(at); }
inline Vector differences(const int32_t* a, const int32_t* b) {
  return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_loadu_si512(a), _mm512_loadu_si512(b)));
}
inline Vector evens(Pairs x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
inline Vector odds(Pairs x) {
  return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(0xffff0000)));
}
#else
using Vector = __m256;
constexpr int LANES = 8;
inline Vector load(const float* at) { return _mm256_loadu_ps(at); }
inline void store(float* at, Vector x) { _mm256_storeu_ps(at, x); }
inline Vector spread(float x) { return _mm256_set1_ps(x); }
inline Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
inline Vector larger(Vector a, Vector b) { return _mm256_max_ps(a, b); }
inline Vector smaller(Vector a, Vector b) { return _mm256_min_ps(a, b); }
inline float sum(Vector x) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(Vector x) {
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline Vector to_whole(Vector x) { return _mm256_round_ps(x, 8); }
// For results that are normal numbers.
inline Vector times_power_of_two(Vector x, Vector whole) {
  __m256i power = _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127));
  return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(power, 23)));
}
inline Vector finite(Vector x) {
  return _mm256_and_ps(x, _mm256_cmp_ps(_mm256_sub_ps(x, x), _mm256_setzero_ps(), _CMP_EQ_OQ));
}
// x in the lanes from `begin` to `end`, `other` elsewhere.
inline Vector between(int64_t begin, int64_t end, Vector x, Vector other) {
  const auto at = [](int64_t lane) {
    return _mm256_set1_epi32(static_cast<int>(std::clamp<int64_t>(lane, 0, LANES)));
  };
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i outside = _mm256_cmpgt_epi32(at(begin), lanes);
  const __m256i inside = _mm256_andnot_si256(outside, _mm256_cmpgt_epi32(at(end), lanes));
  return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(inside));
}
inline Vector load_wide(const uint16_t* at) {
  __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
// To the nearest number in bfloat16, as narrow does it.
inline Vector rounded_narrow(Vector x) {
  const __m256i bits = _mm256_castps_si256(x), kept = _mm256_set1_epi32(0xffff0000);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i found = _mm256_and_si256(_mm256_add_epi32(bits, half), kept);
  const __m256i quiet = _mm256_or_si256(_mm256_and_si256(bits, kept), _mm256_set1_epi32(64 << 16));
  return _mm256_blendv_ps(_mm256_castsi256_ps(found), _mm256_castsi256_ps(quiet),
                          _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
inline void store_narrow(uint16_t* at, Vector x) {
  const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(rounded_narrow(x)), 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm256_castsi256_si128(packed));
}
inline Vector low_pairs(Vector a, Vector b) {
  return _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
}
inline Vector high_pairs(Vector a, Vector b) {
  return _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
}
inline Vector low(Vector a, Vector b) { return _mm256_unpacklo_ps(a, b); }
inline Vector high(Vector a, Vector b) { return _mm256_unpackhi_ps(a, b); }
// Column j of a group of four rows lies in halves of r[j]: those of both groups become one vector.
inline void gather_quarters(Vector* r) {
  for (int j = 0; j < 4; j++) {
    Vector a = _mm256_permute2f128_ps(r[j], r[4 + j], 0x20);
    r[4 + j] = _mm256_permute2f128_ps(r[j], r[4 + j], 0x31);
    r[j] = a;
  }
}
using Pairs = __m256i;
inline Pairs load_pairs(const uint16_t* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
inline Vector differences(const int32_t* a, const int32_t* b) {
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_loadu_si256((const __m256i*)a),
                                             _mm256_loadu_si256((const __m256i*)b)));
}
inline Vector evens(Pairs x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
inline Vector odds(Pairs x) {
  return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(0xffff0000)));
}
#endif

// e^x to two units of its last place, for x of -87 to 88; beyond, as at the nearer end. The
// polynomial is that of Cephes (expf).
inline Vector exponential(Vector x) {
  Vector kept = smaller(larger(x, spread(-87.0f)), spread(88.0f));
  Vector whole = to_whole(kept * spread(1.44269504f));
  Vector r = fma(whole, spread(-0.693359375f), kept);
  r = fma(whole, spread(2.12194440e-4f), r);
  Vector y = spread(1.9875691500e-4f);
  for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                  5.0000001201e-1f})
    y = fma(y, r, spread(c));
  y = fma(y * r, r, r + spread(1.0f));
  return times_power_of_two(y, whole);
}

// Rows become columns.
inline void transpose(Vector* r) {
  for (int i = 0; i < LANES; i += 4) {
    Vector a = low(r[i], r[i + 1]), b = high(r[i], r[i + 1]);
    Vector c = low(r[i + 2], r[i + 3]), d = high(r[i + 2], r[i + 3]);
    r[i] = low_pairs(a, c), r[i + 1] = high_pairs(a, c);
    r[i + 2] = low_pairs(b, d), r[i + 3] = high_pairs(b, d);
  }
  gather_quarters(r);
}

// A word is what a product of attention takes at once: a number in float32, or a pair in bfloat16.
// `factor` rounds to what a word can hold; `join_words` makes words of such numbers, in place.
struct Float32 {
  using Number = float;
  static constexpr int WORD = 1;  // numbers
  static float one(Number x) { return x; }
  static Number of(float x) { return x; }
  static Vector get(const Number* at) { return load(at); }
  static void put(Number* at, Vector x) { store(at, x); }
  static Vector rounded(Vector x) { return x; }
  static Vector words(const Number* at) { return get(at); }
  static Vector add(Vector a, Vector b, Vector sum) { return fma(a, b, sum); }
  static Vector factor(Vector x) { return x; }
  static void join_words(float*, int64_t) {}
};

// Computed in float32.
struct BFloat16 {
  using Number = uint16_t;
  static constexpr int WORD = 1;
  static float one(Number x) { return widen(x); }
  static Number of(float x) { return narrow(x); }
  static Vector get(const Number* at) { return load_wide(at); }
  static void put(Number* at, Vector x) { store_narrow(at, x); }
  static Vector rounded(Vector x) { return rounded_narrow(x); }
  static Vector words(const Number* at) { return get(at); }
  static Vector add(Vector a, Vector b, Vector sum) { return fma(a, b, sum); }
  static Vector factor(Vector x) { return x; }
  static void join_words(float*, int64_t) {}
};

#if defined(__AVX512BF16__)
// Computed by the processor's own products of pairs, whose sums are in float32.
struct BFloat16Pairs : BFloat16 {
  using Widened = BFloat16;
  static constexpr int WORD = 2;
  static Vector words(const Number* at) { return _mm512_castsi512_ps(load_pairs(at)); }
  static Vector add(Vector a, Vector b, Vector sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
  static Vector factor(Vector x) {
    const __m512i wide = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static void join_words(float* numbers, int64_t count) {
    for (int64_t i = 0; i < count; i += 2 * LANES) {
      const __m512bh both = _mm512_cvtne2ps_pbh(load(numbers + i + LANES), load(numbers + i));
      store(numbers + i / 2, (__m512)both);
    }
  }
};
#endif

// A vector of the `left` numbers that there are; zeros behind them.
template <class E>
Vector get(const typename E::Number* at, int64_t left) {
  if (left >= LANES) return E::get(at);
  typename E::Number part[LANES] = {};
  std::memcpy(part, at, left * sizeof part[0]);
  return E::get(part);
}

template <class E>
void put(typename E::Number* at, Vector x, int64_t left) {
  if (left >= LANES) return E::put(at, x);
  typename E::Number part[LANES];
  E::put(part, x);
  std::memcpy(at, part, left * sizeof part[0]);
}

}  // namespace
