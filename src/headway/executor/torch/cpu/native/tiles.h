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

// Keys of a tile, dimension by dimension: turned [SIZE][TILE].
template <class E, int SIZE>
void turn(const typename E::Number* const* keys, int64_t count, float* turned) {
  for (int64_t first = 0; first < count; first += LANES)
    for (int d = 0; d < SIZE; d += LANES) {
      Vector rows[LANES];
      for (int i = 0; i < LANES; i++) rows[i] = E::get(keys[first + i] + d);
      transpose(rows);
      for (int j = 0; j < LANES; j++) store(turned + (d + j) * TILE + first, rows[j]);
    }
}

// scores [LINES][TILE] of queries q [LINES][SIZE] and the first `count` keys.
template <int SIZE, int LINES>
void score(const float* q, const float* turned, int64_t count, float* scores) {
  for (int64_t first = 0; first < count; first += COLUMNS) {
    Vector sums[LINES][WIDE];
    for (int r = 0; r < LINES; r++)
      for (int j = 0; j < WIDE; j++) sums[r][j] = spread(0.0f);
    for (int d = 0; d < SIZE; d++) {
      const float* at = turned + d * TILE + first;
      for (int r = 0; r < LINES; r++) {
        Vector x = spread(q[r * SIZE + d]);
        for (int j = 0; j < WIDE; j++) sums[r][j] = fma(x, load(at + j * LANES), sums[r][j]);
      }
    }
    for (int r = 0; r < LINES; r++)
      for (int j = 0; j < WIDE; j++) store(scores + r * TILE + first + j * LANES, sums[r][j]);
  }
}

// found [LINES][SIZE] += shares [LINES][TILE] x values.
template <class E, int SIZE, int LINES>
void add_values(const typename E::Number* const* values, int64_t count, const float* shares,
                float* found) {
  for (int64_t first = 0; first < SIZE; first += COLUMNS) {
    int vectors = static_cast<int>(std::min<int64_t>(WIDE, (SIZE - first) / LANES));
    Vector sums[LINES][WIDE];
    for (int r = 0; r < LINES; r++)
      for (int j = 0; j < WIDE; j++)
        sums[r][j] = j < vectors ? load(found + r * SIZE + first + j * LANES) : spread(0.0f);
    for (int64_t i = 0; i < count; i++) {
      Vector v[WIDE];
      for (int j = 0; j < WIDE; j++)
        v[j] = j < vectors ? E::get(values[i] + first + j * LANES) : spread(0.0f);
      for (int r = 0; r < LINES; r++) {
        Vector share = spread(shares[r * TILE + i]);
        for (int j = 0; j < WIDE; j++) sums[r][j] = fma(share, v[j], sums[r][j]);
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
// `high`, and 0 elsewhere. Sums so far are rescaled.
template <int SIZE>
void weigh(float* scores, int64_t low, int64_t high, float scale, float cap, Line& line,
           float* found) {
  auto hide = [&](float hidden) {
    std::fill(scores, scores + low, hidden);
    std::fill(scores + high, scores + TILE, hidden);
  };
  int64_t begin = low / LANES * LANES;
  Vector highest = spread(line.most);
  for (int64_t i = begin; i < high; i += LANES) {
    Vector x = load(scores + i) * spread(scale);
    if (cap > 0) {  // cap tanh(x / cap)
      Vector two = exponential(x * spread(2.0f / cap)) + spread(1.0f);
      x = fma(spread(-2.0f * cap), spread(1.0f) / two, spread(cap));
    }
    store(scores + i, x);
  }
  hide(-INFINITY);
  for (int64_t i = begin; i < high; i += LANES) highest = larger(load(scores + i), highest);
  float most = largest(highest);
  for (int64_t i = begin; i < high; i += LANES)
    store(scores + i, exponential(load(scores + i) - spread(most)));
  hide(0.0f);
  Vector shares = spread(0.0f);
  for (int64_t i = begin; i < high; i += LANES) shares = shares + load(scores + i);
  if (line.most > -INFINITY && most > line.most) {
    float fade = std::exp(line.most - most);
    line.total *= fade;
    for (int64_t i = 0; i < SIZE; i += LANES) store(found + i, load(found + i) * spread(fade));
  }
  line.most = most;
  line.total += sum(shares);
}

}  // namespace
