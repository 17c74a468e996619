// What products of few and many rows share: panels of weights that are read in one order, rows in
// groups, and weights that are asked for before they are needed.
//
// A panel has 64 outputs. Its inputs follow one another in steps of 256 bytes: two inputs in 16 bits
// or four in 8 bits, of all outputs.

#pragma once

#include <omp.h>

#include <atomic>
#include <vector>

#include "vectors.h"

namespace {

constexpr int64_t PANEL = 64;       // outputs
constexpr int64_t STEP = 256;       // bytes
constexpr int64_t LINE = 64;        // bytes of the cache
constexpr int64_t CHUNK = 1 << 14;  // bytes of a panel that all rows use from a near cache
constexpr int64_t LARGE = LANES == 16 ? 1 << 16 : CHUNK;  // for many groups: fewer loads of sums
constexpr int64_t MANY = 8;         // groups
// Bytes. AMD's Zen 3 and 4 read a tenth slower with more, Intel's Xeons with less.
const int64_t AHEAD = LANES == 16 && !__builtin_cpu_is("amd") ? 4096 : 1024;

// A panel of weights [PANEL, words], in words of four bytes, each row `stride` words after the one
// before: word by word, and of each the outputs.
inline void put_panel(const float* rows, int64_t stride, int64_t words, float* panel) {
  int64_t k = 0;
  for (; k + LANES <= words; k += LANES)
    for (int64_t first = 0; first < PANEL; first += LANES) {
      Vector block[LANES];
      for (int i = 0; i < LANES; i++) block[i] = load(rows + (first + i) * stride + k);
      transpose(block);
      for (int i = 0; i < LANES; i++) store(panel + (k + i) * PANEL + first, block[i]);
    }
  for (; k < words; k++)
    for (int64_t i = 0; i < PANEL; i++)
      std::memcpy(panel + k * PANEL + i, rows + i * stride + k, sizeof(float));
}

// Rows in parts of about the same size, of at most so many.
struct Division {
  int64_t rows, parts;
  Division(int64_t rows, int64_t most) : rows(rows), parts((rows + most - 1) / most) {}
  int64_t first(int64_t part) const { return rows * part / parts; }
  int64_t size(int64_t part) const { return first(part + 1) - first(part); }
};

// Parts that threads take one by one: first neighbours, because the memory is read in order, and then
// what others have not begun. On a machine shared with others a core may be slower for a while.
class Parts {
 public:
  Parts(int64_t count, int64_t threads) : threads_(threads), shares_(threads) {
    for (int64_t t = 0; t < threads; t++) {
      shares_[t].next = count * t / threads;
      shares_[t].end = count * (t + 1) / threads;
    }
  }

  // The next part for a thread; -1 if all are taken.
  int64_t take(int64_t thread) {
    for (int64_t i = 0; i < threads_; i++) {
      Share& share = shares_[(thread + i) % threads_];
      if (share.next.load(std::memory_order_relaxed) >= share.end) continue;
      const int64_t part = share.next.fetch_add(1, std::memory_order_relaxed);
      if (part < share.end) return part;
    }
    return -1;
  }

 private:
  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };
  int64_t threads_;
  std::vector<Share> shares_;
};

// Calls work(part) for each of them, by so many threads, of which each calls end() then.
template <class Work, class End>
void for_parts(int64_t count, int64_t threads, const Work& work, const End& end) {
  Parts parts(count, threads);
#pragma omp parallel num_threads(static_cast<int>(threads))
  {
    for (int64_t part; (part = parts.take(omp_get_thread_num())) >= 0;) work(part);
    end();
  }
}

// Weights are asked for ahead, because the processor's own prefetching stops at pages. Where one
// pass over a chunk serves all rows, the memory is the bound, and they are a little ahead. Several
// passes find the chunk in a cache while the memory would rest: each asks for its share of the
// chunk that comes next.
class Ahead {
 public:
  int64_t span = 1 << 30;  // steps, each of which begins with a call of fetch

  // Fetches nothing.
  Ahead() = default;
  // As many steps from `at` on, in so many calls.
  Ahead(const void* at, int64_t steps, int64_t calls)
      : at_(static_cast<const char*>(at)), lines_((steps * (STEP / LINE) + calls - 1) / calls) {}

  // Into the second cache: what waits for the memory must not keep the first from being filled.
  void fetch() {
    for (int64_t i = 0; i < lines_; i++, at_ += LINE) _mm_prefetch(at_, _MM_HINT_T1);
  }

 private:
  const char* at_ = nullptr;
  int64_t lines_ = 0;
};

// Kind::add for so many rows, at most ROWS.
template <class Kind, int ROWS, class... More>
inline void add_group(int64_t rows, More&&... more) {
  if (rows == ROWS) return Kind::template add<ROWS>(more...);
  if constexpr (ROWS > 1) add_group<Kind, ROWS - 1>(rows, more...);
}

// Adds the products of a slab of rows with a panel to their sums [rows][PANEL], chunk by chunk, and
// of each chunk group by group: the sums of a group's rows are in registers together.
//
// A panel is gone through once for each slab: the first one reads it from memory, and the last one
// asks for the beginning of the panel that comes next.
template <class Kind>
void add_panel(const typename Kind::Row* x, int64_t stride, int64_t rows, int64_t steps,
               const typename Kind::Weight* panel, typename Kind::Sum* sums, bool first_slab,
               bool last_slab) {
  const Division groups(rows, Kind::GROUP);
  const int64_t passes = groups.parts * PANEL / Kind::columns(groups.size(groups.parts - 1));
  const int64_t most = (groups.parts < MANY ? CHUNK : LARGE) / STEP;
  for (int64_t step = 0; step < steps; step += most) {
    const int64_t some = std::min(most, steps - step);
    const auto* chunk = panel + step * (STEP / sizeof *panel);
    const bool fetching = step + some < steps ? first_slab : last_slab;
    const auto* next = chunk + (passes == 1 ? AHEAD : some * STEP) / sizeof *panel;
    const int64_t span = std::max<int64_t>(1, passes / (STEP / LINE));
    Ahead ahead = fetching ? Ahead(next, some, passes * ((some + span - 1) / span)) : Ahead();
    ahead.span = span;
    for (int64_t g = 0; g < groups.parts; g++) {
      const int64_t first = groups.first(g), size = groups.size(g);
      add_group<Kind, Kind::GROUP>(size, x + Kind::at(stride, first, size, step), stride, some,
                                   chunk, sums + first * PANEL, ahead);
    }
  }
}

}  // namespace
