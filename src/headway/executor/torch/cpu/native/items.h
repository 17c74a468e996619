// Items of attention: the memory that a thread needs for one, where its keys and values lie, and which
// of them each of its lines sees.

#pragma once

#include <memory>
#include <vector>

#include "amx.h"
#include "tiles.h"

namespace {

// What is the same for all items of a call. The order is that of attend's `shape`.
struct Shape {
  int64_t heads, kv_heads, size, block, width;  // block: tokens; width: of the tables, in blocks
  int64_t group() const { return heads / kv_heads; }
};

// Columns of an item (attention/items.py).
enum { SLOT, ROW, QUERIES, POSITION, KEYS, BEGIN, END, PARTIAL, ITEM };

// Numbers that begin with a line of the cache, zeros at first.
class Aligned {
 public:
  explicit Aligned(int64_t count) : kept_(count + 16) {
    void* at = kept_.data();
    size_t room = kept_.size() * sizeof(float);
    at_ = static_cast<float*>(std::align(64, count * sizeof(float), at, room));
  }
  float* at(int64_t i) { return at_ + i; }
  const float* at(int64_t i) const { return at_ + i; }

 private:
  std::vector<float> kept_;
  float* at_;
};

// A thread's memory, for so many lines.
struct Space {
  Aligned q, turned, values, found;  // values: turned ones, for AMX alone
  std::vector<Line> lines;
  Space(int64_t lines, int64_t size)
      : q(lines * size),
        turned(size * TILE),
        values(AMX ? size * TILE / 2 : 0),
        found(lines * size),
        lines(lines) {}
};

// Where keys and values of a tile lie.
template <class E, int SIZE>
struct Places {
  const typename E::Number *keys[TILE], *values[TILE];

  // The tile of `count` keys from `begin`. Behind the last one stands the last again.
  void find(const Shape& of, const typename E::Number* all_keys,
            const typename E::Number* all_values, const int64_t* table, int64_t begin,
            int64_t count) {
    int64_t block = begin / of.block, in_block = begin % of.block;
    for (int64_t i = 0; i < count; i++) {
      const int64_t cell = table[block] * of.block + in_block;
      keys[i] = all_keys + cell * of.kv_heads * SIZE;
      values[i] = all_values + cell * of.kv_heads * SIZE;
      if (++in_block == of.block) in_block = 0, block++;
    }
    for (int64_t i = count; i < TILE; i++) keys[i] = keys[count - 1], values[i] = values[count - 1];
  }
};

// The tile that comes next. It is asked of the memory key by key while another is computed: blocks
// lie anywhere, so the processor does not foresee it, and all keys at once would hold the computation
// up. Into the second cache: two tiles and the turned keys are more than the first one holds.
template <class E, int SIZE>
struct NextTile {
  Places<E, SIZE> at;
  int64_t count = 0, asked = 0;

  void fetch() {
    if (asked == count) return;
    constexpr int64_t line = 64 / sizeof(typename E::Number);
    for (int64_t j = 0; j < SIZE; j += line) {
      _mm_prefetch(reinterpret_cast<const char*>(at.keys[asked] + j), _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(at.values[asked] + j), _MM_HINT_T1);
    }
    asked++;
  }
};

// Which keys of a tile each of some lines sees: from `low` to `high`, none beyond `most`.
template <int LINES>
struct Seen {
  int64_t low[LINES], high[LINES], most = 0;

  // Of so many lines from `first`, of a tile of `count` keys from `begin`.
  Seen(const int64_t* item, int64_t group, int64_t window, int64_t first, int64_t lines,
       int64_t begin, int64_t count) {
    for (int64_t r = 0; r < lines; r++) {
      int64_t last = std::min(item[POSITION] + (first + r) / group, item[KEYS] - 1);
      low[r] = window ? std::max<int64_t>(0, last - window + 1 - begin) : 0;
      high[r] = std::min(count, last + 1 - begin);
      most = std::max(most, low[r] < high[r] ? high[r] : 0);
    }
  }

  // Scores [lines][TILE] become shares.
  template <class E, int SIZE>
  void weigh_all(float* scores, float scale, float cap, Line* of, int64_t lines, float* found) {
    for (int64_t r = 0; r < lines; r++)
      if (low[r] < high[r])
        weigh<E, SIZE>(scores + r * TILE, low[r], high[r], scale, cap, of[r], found + r * SIZE);
      else
        std::fill(scores + r * TILE, scores + (r + 1) * TILE, 0.0f);
  }
};

}  // namespace
