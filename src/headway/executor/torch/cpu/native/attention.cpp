// Attention of rows of one query, over keys and values where they lie: in blocks, through the tables.
//
// An item is a span of a row's keys. The query heads that share a KV head are computed together, so
// that each key is read from memory once. Sums are in float32, with the softmax of Milakov and
// Gimelshein (2018), which needs no second pass. A row of several spans is merged afterwards. Spans
// follow from the row alone, so a row alone has the same bits as the row in a batch.

#include <cmath>
#include <vector>

#include "vectors.h"

namespace {

constexpr int64_t TILE = 64;  // keys whose scores are kept
constexpr int GROUP = 4;      // heads whose sums are in registers together

// What is the same for all items of a call. The order is that of attend's `shape`.
struct Shape {
  int64_t heads, kv_heads, size, block, width;  // block: tokens; width: of the tables, in blocks
  int64_t heads_of_kv() const { return heads / kv_heads; }
};

// Columns of an item (attention/items.py).
enum { SLOT, ROW, QUERIES, POSITION, KEYS, BEGIN, END, PARTIAL, COLUMNS };

// Keys of LANES rows, dimension by dimension: turned [SIZE][LANES].
template <class E, int SIZE>
void turn(const typename E::Number* const* keys, float* turned) {
  for (int d = 0; d < SIZE; d += LANES) {
    Vector rows[LANES];
    for (int i = 0; i < LANES; i++) rows[i] = E::get(keys[i] + d);
    transpose(rows);
    for (int j = 0; j < LANES; j++) store(turned + (d + j) * LANES, rows[j]);
  }
}

// Scores of HEADS queries [HEADS][SIZE] and LANES keys. scores: [HEADS][TILE], of which LANES.
template <int SIZE, int HEADS>
void score(const float* q, const float* turned, float* scores) {
  Vector even[HEADS], odd[HEADS];
  for (int h = 0; h < HEADS; h++) even[h] = odd[h] = spread(0.0f);
  for (int d = 0; d < SIZE; d += 2) {
    Vector first = load(turned + d * LANES), second = load(turned + (d + 1) * LANES);
    for (int h = 0; h < HEADS; h++) {
      even[h] = fma(spread(q[h * SIZE + d]), first, even[h]);
      odd[h] = fma(spread(q[h * SIZE + d + 1]), second, odd[h]);
    }
  }
  for (int h = 0; h < HEADS; h++) store(scores + h * TILE, even[h] + odd[h]);
}

template <int SIZE>
void score_all(const float* q, const float* turned, int64_t heads, float* scores) {
  for (int64_t h = 0; h < heads; h += GROUP, q += GROUP * SIZE, scores += GROUP * TILE)
    switch (heads - h) {
      case 1: score<SIZE, 1>(q, turned, scores); break;
      case 2: score<SIZE, 2>(q, turned, scores); break;
      case 3: score<SIZE, 3>(q, turned, scores); break;
      default: score<SIZE, GROUP>(q, turned, scores);
    }
}

// found [heads][SIZE] += shares [heads][TILE] x values.
template <class E, int SIZE, int HEADS>
void add_values(const typename E::Number* const* values, int64_t count, const float* shares,
                float* found) {
  constexpr int most = LANES == 16 ? 4 : 2;  // vectors: with four heads, half of the registers
  for (int64_t first = 0; first < SIZE; first += most * LANES) {
    int vectors = static_cast<int>(std::min<int64_t>(most, (SIZE - first) / LANES));
    Vector sums[HEADS][most];
    for (int h = 0; h < HEADS; h++)
      for (int j = 0; j < most; j++)
        sums[h][j] = j < vectors ? load(found + h * SIZE + first + j * LANES) : spread(0.0f);
    for (int64_t i = 0; i < count; i++) {
      Vector v[most];
      for (int j = 0; j < most; j++)
        v[j] = j < vectors ? E::get(values[i] + first + j * LANES) : spread(0.0f);
      for (int h = 0; h < HEADS; h++) {
        Vector share = spread(shares[h * TILE + i]);
        for (int j = 0; j < most; j++) sums[h][j] = fma(share, v[j], sums[h][j]);
      }
    }
    for (int h = 0; h < HEADS; h++)
      for (int j = 0; j < vectors; j++) store(found + h * SIZE + first + j * LANES, sums[h][j]);
  }
}

template <class E, int SIZE>
void add_all_values(const typename E::Number* const* values, int64_t count, const float* shares,
                    int64_t heads, float* found) {
  for (int64_t h = 0; h < heads; h += GROUP, shares += GROUP * TILE, found += GROUP * SIZE)
    switch (heads - h) {
      case 1: add_values<E, SIZE, 1>(values, count, shares, found); break;
      case 2: add_values<E, SIZE, 2>(values, count, shares, found); break;
      case 3: add_values<E, SIZE, 3>(values, count, shares, found); break;
      default: add_values<E, SIZE, GROUP>(values, count, shares, found);
    }
}

// Scores of a tile [TILE] become shares, relative to the largest so far. Sums so far are rescaled.
template <int SIZE>
void weigh(float* scores, int64_t count, float scale, float cap, float& most, float& total,
           float* found) {
  for (int64_t i = count; i < TILE; i++) scores[i] = -INFINITY;
  Vector high = spread(most);
  for (int64_t i = 0; i < count; i += LANES) {
    Vector x = load(scores + i) * spread(scale);
    if (cap > 0) {  // cap tanh(x / cap)
      Vector two = exponential(x * spread(2.0f / cap)) + spread(1.0f);
      Vector capped = fma(spread(-2.0f * cap), spread(1.0f) / two, spread(cap));
      store(scores + i, capped);
      for (int64_t j = count; j < i + LANES; j++) scores[j] = -INFINITY;
      x = load(scores + i);
    }
    store(scores + i, x);
    high = larger(x, high);
  }
  float highest = largest(high);
  Vector shares = spread(0.0f);
  for (int64_t i = 0; i < count; i += LANES) {
    store(scores + i, exponential(load(scores + i) - spread(highest)));
    for (int64_t j = count; j < i + LANES; j++) scores[j] = 0.0f;
    shares = shares + load(scores + i);
  }
  if (most > -INFINITY && highest > most) {
    float fade = std::exp(most - highest);
    total *= fade;
    for (int64_t i = 0; i < SIZE; i += LANES) store(found + i, load(found + i) * spread(fade));
  }
  most = highest;
  total += sum(shares);
}

// A thread's memory.
struct Space {
  std::vector<float> q, turned, scores, found, most, total;
  explicit Space(const Shape& shape)
      : q(shape.heads_of_kv() * shape.size),
        turned(shape.size * LANES),
        scores(shape.heads_of_kv() * TILE),
        found(shape.heads_of_kv() * shape.size),
        most(shape.heads_of_kv()),
        total(shape.heads_of_kv()) {}
};

// Where keys and values of a tile lie.
template <class E, int SIZE>
struct Places {
  const typename E::Number *keys[TILE], *values[TILE];

  // The tile of `count` keys from `begin`. Behind the last one stands the last again.
  void find(const Shape& of, const typename E::Number* all_keys,
            const typename E::Number* all_values, const int64_t* table, int64_t begin,
            int64_t count) {
    for (int64_t i = 0; i < TILE; i++) {
      int64_t key = begin + std::min(i, count - 1);
      int64_t cell = table[key / of.block] * of.block + key % of.block;
      keys[i] = all_keys + cell * of.kv_heads * SIZE;
      values[i] = all_values + cell * of.kv_heads * SIZE;
    }
  }

  // Blocks lie anywhere, so the processor does not foresee the next one.
  void fetch(int64_t count) const {
    constexpr int64_t line = 64 / sizeof(typename E::Number);
    for (int64_t i = 0; i < count; i++)
      for (int64_t j = 0; j < SIZE; j += line) {
        _mm_prefetch(reinterpret_cast<const char*>(keys[i] + j), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(values[i] + j), _MM_HINT_T0);
      }
  }
};

// One item and KV head: the sums of its query heads, in `space`. keys and values: the head's.
template <class E, int SIZE>
void attend_span(const Shape& of, const typename E::Number* q, const typename E::Number* keys,
                 const typename E::Number* values, const int64_t* table, const int64_t* item,
                 float scale, float cap, Space& space) {
  int64_t heads = of.heads_of_kv(), end = item[END];
  for (int64_t i = 0; i < heads * SIZE; i += LANES) store(&space.q[i], E::get(q + i));
  std::fill(space.found.begin(), space.found.end(), 0.0f);
  std::fill(space.most.begin(), space.most.end(), -INFINITY);
  std::fill(space.total.begin(), space.total.end(), 0.0f);
  Places<E, SIZE> now, next;
  int64_t count = std::min(TILE, end - item[BEGIN]);
  now.find(of, keys, values, table, item[BEGIN], count);
  for (int64_t begin = item[BEGIN]; begin < end; begin += TILE) {
    int64_t following = std::min(TILE, end - begin - count);
    if (following > 0) {
      next.find(of, keys, values, table, begin + TILE, following);
      next.fetch(following);
    }
    for (int64_t i = 0; i < count; i += LANES) {
      turn<E, SIZE>(now.keys + i, space.turned.data());
      score_all<SIZE>(space.q.data(), space.turned.data(), heads, &space.scores[i]);
    }
    for (int64_t h = 0; h < heads; h++)
      weigh<SIZE>(&space.scores[h * TILE], count, scale, cap, space.most[h], space.total[h],
                  &space.found[h * SIZE]);
    add_all_values<E, SIZE>(now.values, count, space.scores.data(), heads, space.found.data());
    std::swap(now, next);
    count = following;
  }
}

// A row's spans, each with the largest score and the sum of shares, as one.
template <class E>
void merge_row(const float* partials, const float* sums, int64_t spans, int64_t heads, int64_t size,
               typename E::Number* out) {
  for (int64_t h = 0; h < heads; h++) {
    float most = -INFINITY, total = 0;
    for (int64_t s = 0; s < spans; s++) most = std::max(most, sums[(s * heads + h) * 2]);
    std::vector<float> found(size, 0.0f);
    for (int64_t s = 0; s < spans; s++) {
      const float* sum = sums + (s * heads + h) * 2;
      float fade = std::exp(sum[0] - most);
      total += sum[1] * fade;
      const float* partial = partials + (s * heads + h) * size;
      for (int64_t i = 0; i < size; i++) found[i] += partial[i] * fade;
    }
    for (int64_t i = 0; i < size; i++) out[h * size + i] = E::of(found[i] / total);
  }
}

struct Call {
  const void *q, *keys, *values;
  int64_t q_stride;
  const int64_t *tables, *items, *merges;
  int64_t item_count, merge_count;
  float *partials, *sums;
  float scale, cap;
  void* out;
};

template <class E, int SIZE>
void attend_all(const Shape& of, const Call& call, int64_t threads) {
  using T = typename E::Number;
  int64_t group = of.heads_of_kv(), wide = of.heads * SIZE;
  T* out = static_cast<T*>(call.out);
#pragma omp parallel num_threads(static_cast<int>(threads))
  {
    Space space(of);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < call.item_count * of.kv_heads; i++) {
      const int64_t* item = call.items + i / of.kv_heads * COLUMNS;
      int64_t kv_head = i % of.kv_heads, first = kv_head * group, partial = item[PARTIAL];
      const T* q = static_cast<const T*>(call.q) + item[ROW] * call.q_stride + first * SIZE;
      attend_span<E, SIZE>(of, q, static_cast<const T*>(call.keys) + kv_head * SIZE,
                           static_cast<const T*>(call.values) + kv_head * SIZE,
                           call.tables + item[SLOT] * of.width, item, call.scale, call.cap, space);
      for (int64_t h = 0; h < group; h++) {
        const float* found = &space.found[h * SIZE];
        if (partial >= 0) {
          std::copy(found, found + SIZE, call.partials + (partial * of.heads + first + h) * SIZE);
          float* sums = call.sums + (partial * of.heads + first + h) * 2;
          sums[0] = space.most[h], sums[1] = space.total[h];
          continue;
        }
        Vector share = spread(1.0f / space.total[h]);
        for (int64_t j = 0; j < SIZE; j += LANES)
          E::put(out + item[ROW] * wide + (first + h) * SIZE + j, load(found + j) * share);
      }
    }
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < call.merge_count; i++) {
      const int64_t* merge = call.merges + 3 * i;  // row, first partial, spans
      merge_row<E>(call.partials + merge[1] * wide, call.sums + merge[1] * of.heads * 2, merge[2],
                   of.heads, SIZE, out + merge[0] * wide);
    }
  }
}

template <class E>
bool attend_sized(const Shape& of, const Call& call, int64_t threads) {
  switch (of.size) {
    case 16: return attend_all<E, 16>(of, call, threads), true;
    case 32: return attend_all<E, 32>(of, call, threads), true;
    case 64: return attend_all<E, 64>(of, call, threads), true;
    case 80: return attend_all<E, 80>(of, call, threads), true;
    case 96: return attend_all<E, 96>(of, call, threads), true;
    case 128: return attend_all<E, 128>(of, call, threads), true;
    case 256: return attend_all<E, 256>(of, call, threads), true;
    default: return false;
  }
}

}  // namespace

extern "C" {

// Numbers are in bfloat16 if `narrow`, else in float32. shape: heads, kv_heads, size, tokens of a
// block, width of the tables. q [rows, heads, size], with q_stride numbers from a row to the next;
// keys and values [cells, kv_heads, size]; tables [slots, width]; items [item_count, 8] and merges
// [merge_count, 3] as attention/items.py has them; partials [.., heads, size] and sums [.., heads, 2]
// for the spans that are merged; out [rows, heads, size]. Returns 0 for a size of heads that there is
// no code for.
int attend(int narrow, const int64_t* shape, const void* q, int64_t q_stride, const void* keys,
           const void* values, const int64_t* tables, const int64_t* items, int64_t item_count,
           const int64_t* merges, int64_t merge_count, float* partials, float* sums, float scale,
           float cap, void* out, int64_t threads) {
  Shape of{shape[0], shape[1], shape[2], shape[3], shape[4]};
  Call call{q,          keys,        values,   q_stride, tables, items, merges,
            item_count, merge_count, partials, sums,     scale,  cap,   out};
  return (narrow ? attend_sized<BFloat16> : attend_sized<Float32>)(of, call, threads);
}
}
