// Vectors of float32 of the widest kind that this processor has, and numbers in bfloat16.

#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {

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
using Pairs = __m512i;
inline Pairs load_pairs(const uint16_t* at) { return _mm512_loadu_si512(at); }
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
using Pairs = __m256i;
inline Pairs load_pairs(const uint16_t* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
inline Vector evens(Pairs x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
inline Vector odds(Pairs x) {
  return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(0xffff0000)));
}
#endif

}  // namespace
