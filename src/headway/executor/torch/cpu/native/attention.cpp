// Attention over keys and values where they lie: in blocks, through the tables.
//
// An item is a span of a row's keys for one query, or some queries of a row for all keys they see. The
// query heads that share a KV head are computed together, each query and head a line of a tile, so
// that keys are read from memory once. A row of several spans is merged afterwards. Items and the
// order of sums follow from the row alone, so a row alone has the same bits as in a batch.

#include <vector>

#include "items.h"
#include "words.h"

namespace {

// Which queries a call computes, and how. T: the type of a number.
template <class T>
struct Call {
  const T *q, *keys, *values;
  int64_t q_stride;
  const int64_t *tables, *items, *merges;
  int64_t item_count, merge_count;
  float *partials, *sums;
  float scale, cap;
  int64_t window;
  T* out;
};

// The next tile of one item and KV head, for LINES lines from `first`.
template <class E, int SIZE, int LINES>
void add_lines(const Call<typename E::Number>& call, const Places<E, SIZE>& at,
               const int64_t* item, int64_t group, int64_t first, int64_t begin, int64_t count,
               Space& space, NextTile<E, SIZE>& next) {
  Seen<LINES> seen(item, group, call.window, first, LINES, begin, count);
  if (seen.most == 0) return;
  alignas(64) float scores[LINES * TILE];
  float* found = space.found.at(first * SIZE);
  const float* q = space.q.at(first * (SIZE / E::WORD));
  score<E, SIZE, LINES>(q, space.turned.at(0), seen.most, scores, next);
  seen.template weigh_all<E, SIZE>(scores, call.scale, call.cap, &space.lines[first], LINES, found);
  add_values<E, SIZE, LINES>(at.values, seen.most, scores, found, next);
}

#if defined(__AVX512BF16__)
// As add_lines, by AMX, for at most 16 lines. Its tiles are the words of queries, keys, shares and
// values. A panel has PANEL keys, or PANEL dimensions of values.
template <int SIZE>
void add_lines_by_tiles(const Call<uint16_t>& call, const int64_t* item, int64_t group,
                        int64_t first, int64_t lines, int64_t begin, int64_t count, Space& space,
                        NextTile<BFloat16Pairs, SIZE>& next) {
  static_assert(TILE == PANEL);
  Seen<SIDE> seen(item, group, call.window, first, lines, begin, count);
  if (seen.most == 0) return;
  alignas(64) float scores[SIDE * TILE];
  char* found = reinterpret_cast<char*>(space.found.at(first * SIZE));
  struct {  // tiles are few: keys of the next one are asked for by fours
    NextTile<BFloat16Pairs, SIZE>& next;
    void fetch() {
      for (int i = 0; i < 4; i++) next.fetch();
    }
  } fours{next};
  const auto add = [&](const float* x, int64_t stride, int64_t steps, const float* panel, char* sums,
                       int64_t apart, bool anew) {
    add_tiles<BFloat16Tiles, 1>(reinterpret_cast<const char*>(x), stride, lines, steps,
                                reinterpret_cast<const char*>(panel), sums, apart, anew, fours);
  };
  add(space.q.at(first * (SIZE / 2)), 2 * SIZE, SIZE / 2, space.turned.at(0),
      reinterpret_cast<char*>(scores), STEP, true);
  seen.template weigh_all<BFloat16Pairs, SIZE>(scores, call.scale, call.cap, &space.lines[first],
                                               lines, space.found.at(first * SIZE));
  for (int64_t panel = 0; panel < SIZE / PANEL; panel++)
    add(scores, STEP, TILE / 2, space.values.at(panel * PANEL * TILE / 2), found + panel * STEP,
        SIZE * sizeof(float), false);
}
#endif

// The tile from `begin` of an item and KV head. Returns how many keys it has.
template <class E, int SIZE>
int64_t find_tile(const Shape& of, const Call<typename E::Number>& call, const int64_t* item,
                  int64_t kv_head, int64_t begin, Places<E, SIZE>& at) {
  const int64_t* table = call.tables + item[SLOT] * of.width;
  const int64_t count = std::min(TILE, item[END] - begin);
  at.find(of, call.keys + kv_head * SIZE, call.values + kv_head * SIZE, table, begin, count);
  return count;
}

// The tile `now` of `count` keys from `begin`, for all lines of an item and KV head.
template <class E, int SIZE>
void add_tile(const Call<typename E::Number>& call, const Places<E, SIZE>& now, const int64_t* item,
              int64_t group, int64_t lines, int64_t begin, int64_t count, Space& space,
              NextTile<E, SIZE>& next) {
  turn<E, SIZE>(now.keys, count, space.turned.at(0));
#if defined(__AVX512BF16__)
  if constexpr (std::is_same_v<E, BFloat16Pairs> && SIZE % PANEL == 0)
    if (AMX) {
      turn_values<SIZE>(now.values, space.values.at(0));
      for (int64_t r = 0; r < lines; r += SIDE)
        add_lines_by_tiles<SIZE>(call, item, group, r, std::min(SIDE, lines - r), begin, count, space,
                                 next);
      return;
    }
#endif
  for (int64_t r = 0; r < lines; r += GROUP) switch (lines - r) {
      case 1: add_lines<E, SIZE, 1>(call, now, item, group, r, begin, count, space, next); break;
      case 2: add_lines<E, SIZE, 2>(call, now, item, group, r, begin, count, space, next); break;
      case 3: add_lines<E, SIZE, 3>(call, now, item, group, r, begin, count, space, next); break;
      default: add_lines<E, SIZE, GROUP>(call, now, item, group, r, begin, count, space, next);
    }
}

// Item `number / kv_heads` and KV head `number % kv_heads`: the sums of its lines, in `space`. then:
// the number that this thread is likely to compute next.
template <class E, int SIZE>
void attend_item(const Shape& of, const Call<typename E::Number>& call, int64_t number, int64_t then,
                 Space& space) {
  const int64_t* item = call.items + number / of.kv_heads * ITEM;
  const int64_t kv_head = number % of.kv_heads;
  int64_t group = of.group(), lines = item[QUERIES] * group, end = item[END];
  for (int64_t r = 0; r < lines; r++) {
    const auto* q = call.q + (item[ROW] + r / group) * call.q_stride;
    q += (kv_head * group + r % group) * SIZE;
    float* words = space.q.at(r * (SIZE / E::WORD));
    for (int64_t i = 0; i < SIZE / E::WORD; i += LANES) store(words + i, E::words(q + i * E::WORD));
  }
  std::fill_n(space.found.at(0), lines * SIZE, 0.0f);
  std::fill_n(space.lines.begin(), lines, Line{-INFINITY, 0.0f});
  Places<E, SIZE> now;
  int64_t count = find_tile(of, call, item, kv_head, item[BEGIN], now);
  for (int64_t begin = item[BEGIN]; begin < end; begin += TILE) {
    NextTile<E, SIZE> next;
    if (begin + TILE < end) {
      next.count = find_tile(of, call, item, kv_head, begin + TILE, next.at);
    } else if (then < call.item_count * of.kv_heads) {
      const int64_t* other = call.items + then / of.kv_heads * ITEM;
      next.count = find_tile(of, call, other, then % of.kv_heads, other[BEGIN], next.at);
    }
    add_tile<E, SIZE>(call, now, item, group, lines, begin, count, space, next);
    while (next.asked < next.count) next.fetch();
    now = next.at;
    count = next.count;
  }
}

// What was found for one item and KV head: the answers, or partial ones.
template <class E, int SIZE>
void put_item(const Shape& of, const Call<typename E::Number>& call, const int64_t* item,
              int64_t kv_head, const Space& space) {
  int64_t group = of.group(), partial = item[PARTIAL];
  for (int64_t r = 0; r < item[QUERIES] * group; r++) {
    const float* found = space.found.at(r * SIZE);
    int64_t head = kv_head * group + r % group;
    if (partial >= 0) {
      std::copy(found, found + SIZE, call.partials + (partial * of.heads + head) * SIZE);
      float* sums = call.sums + (partial * of.heads + head) * 2;
      sums[0] = space.lines[r].most, sums[1] = space.lines[r].total;
      continue;
    }
    auto* out = call.out + ((item[ROW] + r / group) * of.heads + head) * SIZE;
    Vector share = spread(1.0f / space.lines[r].total);
    for (int64_t j = 0; j < SIZE; j += LANES) E::put(out + j, load(found + j) * share);
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

template <class E, int SIZE>
void attend_all(const Shape& of, const Call<typename E::Number>& call, int64_t threads) {
  int64_t queries = 0, wide = of.heads * SIZE;
  for (int64_t i = 0; i < call.item_count; i++)
    queries = std::max(queries, call.items[i * ITEM + QUERIES]);
#pragma omp parallel num_threads(static_cast<int>(threads))
  {
    Space space(queries * of.group(), SIZE);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < call.item_count * of.kv_heads; i++) {
      attend_item<E, SIZE>(of, call, i, i + threads, space);
      put_item<E, SIZE>(of, call, call.items + i / of.kv_heads * ITEM, i % of.kv_heads, space);
    }
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < call.merge_count; i++) {
      const int64_t* merge = call.merges + 3 * i;  // row, first partial, spans
      merge_row<E>(call.partials + merge[1] * wide, call.sums + merge[1] * of.heads * 2, merge[2],
                   of.heads, SIZE, call.out + merge[0] * wide);
    }
    release_tiles();
  }
}

// Heads of half a vector of words, and the like, are computed number by number.
template <class E, int SIZE>
bool attend_of(const Shape& of, const Call<typename E::Number>& call, int64_t threads) {
  if constexpr (SIZE % (LANES * E::WORD) == 0)
    attend_all<E, SIZE>(of, call, threads);
  else
    attend_all<typename E::Widened, SIZE>(of, call, threads);
  return true;
}

template <class E>
bool attend_sized(const Shape& of, const Call<typename E::Number>& call, int64_t threads) {
  switch (of.size) {
    case 16: return attend_of<E, 16>(of, call, threads);
    case 32: return attend_of<E, 32>(of, call, threads);
    case 64: return attend_of<E, 64>(of, call, threads);
    case 80: return attend_of<E, 80>(of, call, threads);
    case 96: return attend_of<E, 96>(of, call, threads);
    case 128: return attend_of<E, 128>(of, call, threads);
    case 256: return attend_of<E, 256>(of, call, threads);
    default: return false;
  }
}

// What changes from step to step, as words at one place.
enum { TABLES, ITEMS, ITEM_COUNT, MERGES, MERGE_COUNT, PARTIALS, SUMS };

template <class E>
int attend_as(const int64_t* shape, const void* q, int64_t q_stride, const void* keys,
              const void* values, const int64_t* work, float scale, float cap, int64_t window,
              void* out, int64_t threads) {
  using T = typename E::Number;
  Shape of{shape[0], shape[1], shape[2], shape[3], shape[4]};
  Call<T> call{static_cast<const T*>(q),
               static_cast<const T*>(keys),
               static_cast<const T*>(values),
               q_stride,
               of_word<const int64_t*>(work[TABLES]),
               of_word<const int64_t*>(work[ITEMS]),
               of_word<const int64_t*>(work[MERGES]),
               work[ITEM_COUNT],
               work[MERGE_COUNT],
               of_word<float*>(work[PARTIALS]),
               of_word<float*>(work[SUMS]),
               scale,
               cap,
               window,
               static_cast<T*>(out)};
  return attend_sized<E>(of, call, threads);
}

}  // namespace

extern "C" {

// kind: 0: numbers are in float32; 1: in bfloat16, computed in float32; 2: in bfloat16, by the
// processor's products of pairs, where it has some (has_bfloat16), or by AMX. shape: heads, kv_heads,
// size, tokens of a block, width of the tables. q [rows, heads, size], with q_stride numbers from a row to
// the next; keys and values [cells, kv_heads, size]; window 0: there is none; out [rows, heads, size].
// work: the addresses of tables [slots, width] and items [item_count, 8], item_count, the address of
// merges [merge_count, 3] (attention/items.py), merge_count, the addresses of partials
// [.., heads, size] and sums [.., heads, 2] for the spans that are merged. Returns 0 for a size of
// heads that there is no code for.
int attend(int kind, const int64_t* shape, const void* q, int64_t q_stride, const void* keys,
           const void* values, const int64_t* work, float scale, float cap, int64_t window,
           void* out, int64_t threads) {
  auto* attending = kind ? attend_as<BFloat16> : attend_as<Float32>;
#if defined(__AVX512BF16__)
  if (kind == 2) attending = attend_as<BFloat16Pairs>;
#endif
  return attending(shape, q, q_stride, keys, values, work, scale, cap, window, out, threads);
}
}

RECORDABLE(attend)
