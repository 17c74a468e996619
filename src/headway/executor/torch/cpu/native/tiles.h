// A tile of keys, and the lines that attend to it: each a query and a head. Sums are in float32, with
// the softmax of Milakov and Gimelshein (2018), which needs no second pass.

#pragma once

#include <cmath>

#include "vectors.h"

namespace {

constexpr int64_t TILE = 64;  // keys whose scores are kept
constexpr int GROUP = 4;      // lines whose sums are in registers together
constexpr int WIDE = LANES == 16 ? 4 : 2;  // vectors of each: with four lines, half of the registers
constexpr int64_t COLUMNS = WIDE * LANES;

// Keys of a tile, word by word: turned [SIZE / WORD][TILE].
template <class E, int SIZE>
void turn(const typename E::Number* const* keys, int64_t count, float* turned) {
  for (int64_t first = 0; first < count; first += LANES)
    for (int word = 0; word < SIZE / E::WORD; word += LANES) {
      Vector rows[LANES];
      for (int i = 0; i < LANES; i++) rows[i] = E::words(keys[first + i] + word * E::WORD);
      transpose(rows);
      for (int j = 0; j < LANES; j++) store(turned + (word + j) * TILE + first, rows[j]);
    }
}

// scores [LINES][TILE] of queries q [LINES][SIZE / WORD] and the first `count` keys. next.fetch() is
// called again and again meanwhile.
template <class E, int SIZE, int LINES, class Next>
void score(const float* q, const float* turned, int64_t count, float* scores, Next& next) {
  constexpr int WORDS = SIZE / E::WORD;
  for (int64_t first = 0; first < count; first += COLUMNS) {
    Vector sums[LINES][WIDE];
    for (int r = 0; r < LINES; r++)
      for (int j = 0; j < WIDE; j++) sums[r][j] = spread(0.0f);
    for (int word = 0; word < WORDS; word++) {
      next.fetch();
      const float* at = turned + word * TILE + first;
      for (int r = 0; r < LINES; r++) {
        Vector x = spread(q[r * WORDS + word]);
        for (int j = 0; j < WIDE; j++) sums[r][j] = E::add(x, load(at + j * LANES), sums[r][j]);
      }
    }
    for (int r = 0; r < LINES; r++)
      for (int j = 0; j < WIDE; j++) store(scores + r * TILE + first + j * LANES, sums[r][j]);
  }
}

// Values of the next WORD keys from `first` on, `vectors` of WIDE; zeros behind them.
template <class E>
void take_values(const typename E::Number* const* values, int64_t first, int vectors, Vector* v) {
  for (int j = 0; j < WIDE; j++)
    v[j] = j < vectors ? E::get(values[0] + first + j * LANES) : spread(0.0f);
}

#if defined(__AVX512BF16__)
// Pairs: of each dimension, the values of two keys.
template <>
void take_values<BFloat16Pairs>(const uint16_t* const* values, int64_t first, int vectors,
                                Vector* v) {
  const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i twice = _mm512_or_si512(_mm512_slli_epi32(lanes, 16), lanes);
  const __m512i first_half = _mm512_add_epi32(twice, _mm512_set1_epi32(32 << 16));
  const __m512i second_half = _mm512_add_epi32(first_half, _mm512_set1_epi32(16 << 16 | 16));
  for (int j = 0; j < WIDE; j += 2) {
    if (j >= vectors) {
      v[j] = v[j + 1] = spread(0.0f);
      continue;
    }
    const Pairs a = load_pairs(values[0] + first + j * LANES);
    const Pairs b = load_pairs(values[1] + first + j * LANES);
    v[j] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(a, first_half, b));
    v[j + 1] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(a, second_half, b));
  }
}

// Values of a tile as words: panels [SIZE / COLUMNS][TILE / 2][COLUMNS].
template <int SIZE>
void turn_values(const uint16_t* const* values, float* panels) {
  for (int64_t first = 0; first < SIZE; first += COLUMNS)
    for (int64_t i = 0; i < TILE; i += 2, panels += COLUMNS) {
      Vector v[WIDE];
      take_values<BFloat16Pairs>(values + i, first, WIDE, v);
      for (int j = 0; j < WIDE; j++) store(panels + j * LANES, v[j]);
    }
}
#endif

// found [LINES][SIZE] += shares [LINES][TILE] x values. shares are words. next as in score.
template <class E, int SIZE, int LINES, class Next>
void add_values(const typename E::Number* const* values, int64_t count, const float* shares,
                float* found, Next& next) {
  for (int64_t first = 0; first < SIZE; first += COLUMNS) {
    int vectors = static_cast<int>(std::min<int64_t>(WIDE, (SIZE - first) / LANES));
    Vector sums[LINES][WIDE];
    for (int r = 0; r < LINES; r++)
      for (int j = 0; j < WIDE; j++)
        sums[r][j] = j < vectors ? load(found + r * SIZE + first + j * LANES) : spread(0.0f);
    for (int64_t i = 0; i < count; i += E::WORD) {
      next.fetch();
      Vector v[WIDE];
      take_values<E>(values + i, first, vectors, v);
      for (int r = 0; r < LINES; r++) {
        Vector share = spread(shares[r * TILE + i / E::WORD]);
        for (int j = 0; j < WIDE; j++) sums[r][j] = E::add(share, v[j], sums[r][j]);
      }
    }
    for (int r = 0; r < LINES; r++)
      for (int j = 0; j < vectors; j++) store(found + r * SIZE + first + j * LANES, sums[r][j]);
  }
}

// What a line has found so far.
struct Line {
  float most, total;  // the largest score; the sum of shares, relative to it
};

// Scores of a tile [TILE] become shares, relative to the largest so far: those of keys from `low` to
// `high`, and 0 elsewhere; as words [TILE / WORD]. Sums so far are rescaled.
template <class E, int SIZE>
void weigh(float* scores, int64_t low, int64_t high, float scale, float cap, Line& line,
           float* found) {
  constexpr int VECTORS = TILE / LANES;
  const bool whole = low == 0 && high == TILE;
  Vector x[VECTORS];
  const auto hide = [&](auto i, float hidden) INLINE {
    if (!whole) x[i] = between(low - i * LANES, high - i * LANES, x[i], spread(hidden));
  };
  Vector highest = spread(line.most), shares = spread(0.0f);
  each<VECTORS>([&](auto i) INLINE {
    x[i] = load(scores + i * LANES) * spread(scale);
    if (cap > 0) {  // cap tanh(x / cap)
      Vector two = exponential(x[i] * spread(2.0f / cap)) + spread(1.0f);
      x[i] = fma(spread(-2.0f * cap), spread(1.0f) / two, spread(cap));
    }
    hide(i, -INFINITY);
    highest = larger(x[i], highest);
  });
  float most = largest(highest);
  each<VECTORS>([&](auto i) INLINE {
    x[i] = E::factor(exponential(x[i] - spread(most)));
    hide(i, 0.0f);
    shares = shares + x[i];
    store(scores + i * LANES, x[i]);
  });
  if (line.most > -INFINITY && most > line.most) {
    float fade = std::exp(line.most - most);
    line.total *= fade;
    for (int64_t i = 0; i < SIZE; i += LANES) store(found + i, load(found + i) * spread(fade));
  }
  line.most = most;
  line.total += sum(shares);
  E::join_words(scores, TILE);
}

}  // namespace
