// Products by AMX, where the processor has it: 16 rows by 16 outputs at once, 64 bytes of each.
//
// A panel's steps lie as its tiles of weights want them: 16 steps, of each 16 outputs, are a tile of
// 16 lines that are STEP bytes apart. Products of integers are exact, so their sums are those of every
// other processor. Sums of pairs in bfloat16 are rounded otherwise than by AVX-512; here, too, a row's
// sum does not depend on its company.

#pragma once

#include "panels.h"

#if defined(__AMX_TILE__) && defined(__AMX_INT8__) && defined(__AMX_BF16__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

#if defined(__AMX_TILE__) && defined(__AMX_INT8__) && defined(__AMX_BF16__)
// Linux keeps the tiles of those processes only that ask for it.
inline bool amx_is_permitted() {
  constexpr long ASK = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
}
const bool AMX = amx_is_permitted();
#else
constexpr bool AMX = false;
#endif

constexpr int64_t SIDE = 16;             // of a tile: rows, outputs, or steps of four bytes
constexpr int64_t TILE_AHEAD = 1 << 13;  // bytes; a row in one tile asks for weights so far ahead

template <int TO>
inline INLINE void load_tile(const void* at, int64_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(TO), "r"(at), "r"(stride) : "memory");
}
template <int TO>
inline INLINE void clear_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(TO));
}
template <int FROM>
inline INLINE void store_tile(void* at, int64_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(FROM), "r"(at), "r"(stride) : "memory");
}

// Adds the products of a tile of rows with one of weights to one of sums.
struct Int8Tiles {  // rows unsigned, weights signed
  template <int SUMS, int ROWS, int WEIGHTS>
  static INLINE void add() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS), "i"(ROWS), "i"(WEIGHTS));
  }
};
struct BFloat16Tiles {
  template <int SUMS, int ROWS, int WEIGHTS>
  static INLINE void add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS), "i"(ROWS), "i"(WEIGHTS));
  }
};

// To set shapes takes some hundred nanoseconds, so a thread keeps them until they change.
thread_local int64_t shaped_for = 0;  // rows; 0: nobody's

// Rows are in one tile or two (TILES), and meet four tiles of outputs at once or two. Tiles 0 to 3
// are the sums, 4 the rows, with two tiles 5 as well, and the others weights.
template <int TILES>
void shape_tiles(int64_t rows) {
  if (rows == shaped_for) return;
  shaped_for = rows;
  struct alignas(64) {
    uint8_t palette = 1, unused[15] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
  } shapes;
  for (int i = 0; i < 8; i++) {
    const bool second = TILES == 2 && (i == 2 || i == 3 || i == 5);  // of the tiles of rows
    shapes.bytes[i] = LINE;
    shapes.rows[i] = i >= 4 + TILES ? SIDE : second ? rows - SIDE : std::min(rows, SIDE);
  }
  asm volatile("ldtilecfg %0" ::"m"(shapes));
}

// Or the system would save them at every switch. Others may shape them then.
inline void release_tiles() {
  if (!shaped_for) return;
  shaped_for = 0;
  asm volatile("tilerelease" ::: "memory");
}

// x, panel and sums in bytes; rows, at most 16 of TILES, are `stride` apart, their sums `apart`. anew:
// there are no sums yet. next.fetch() is called again and again meanwhile.
template <class Kind, int TILES, class Next>
void add_tiles(const char* x, int64_t stride, int64_t rows, int64_t steps, const char* panel,
               char* sums, int64_t apart, bool anew, Next& next) {
  constexpr int COLUMNS = 4 / TILES;
  shape_tiles<TILES>(rows);
  const auto multiply = [&](const char* x, int64_t stride, const char* weights) INLINE {
    each<TILES>([&](auto r) INLINE { load_tile<4 + r>(x + r * SIDE * stride, stride); });
    each<COLUMNS>([&](auto j) INLINE {
      constexpr int J = decltype(j)::value, FROM = 4 + TILES + J % (4 - TILES);
      load_tile<FROM>(weights + J * LINE, STEP);
      each<TILES>([&](auto r) INLINE {
        constexpr int R = decltype(r)::value;
        Kind::template add<R * COLUMNS + J, 4 + R, FROM>();
      });
      next.fetch();
    });
  };
  for (int64_t column = 0; column < STEP; column += COLUMNS * LINE) {
    const auto each_sum = [&](auto move) INLINE {
      each<4>([&](auto i) INLINE {
        move(i, sums + i / COLUMNS * SIDE * apart + column + i % COLUMNS * LINE);
      });
    };
    if (anew) each<4>([](auto i) INLINE { clear_tile<decltype(i)::value>(); });
    else each_sum([&](auto i, char* at) INLINE { load_tile<decltype(i)::value>(at, apart); });
    int64_t step = 0;
    for (; step + SIDE <= steps; step += SIDE)
      multiply(x + 4 * step, stride, panel + column + step * STEP);
    if (step < steps) {  // what lies behind the last ones is not multiplied
      alignas(64) char some[TILES * SIDE * LINE] = {}, weights[SIDE * STEP] = {};
      for (int64_t r = 0; r < rows; r++)
        std::memcpy(some + r * LINE, x + r * stride + 4 * step, 4 * (steps - step));
      std::memcpy(weights, panel + step * STEP, (steps - step) * STEP);
      multiply(some, LINE, weights + column);
    }
    each_sum([&](auto i, char* at) INLINE { store_tile<decltype(i)::value>(at, apart); });
  }
}

// As multiply_rows, with x, its stride, and panel in bytes.
template <class Kind, class Sum, class Read>
void multiply_by_tiles(const char* x, int64_t stride, int64_t rows, int64_t steps, const char* panel,
                       Sum* sums, bool first_slab, bool last_slab, const Read& read) {
  constexpr int64_t GROUP = 2 * SIDE;
  const int64_t groups = (rows + GROUP - 1) / GROUP;
  const int64_t most = groups < MANY / 2 ? LARGE : LARGE / 2;  // what many use stays nearer
  const Division chunks((steps + SIDE - 1) / SIDE, most / (STEP * SIDE));
  for (int64_t c = 0; c < chunks.parts; c++) {
    const bool last = c + 1 == chunks.parts;
    const int64_t step = SIDE * chunks.first(c);
    const int64_t some = std::min(SIDE * chunks.size(c), steps - step);
    const char* chunk = panel + step * STEP;
    const char* next = chunk + (rows <= SIDE ? TILE_AHEAD : some * STEP);
    const int64_t calls = groups * 4 * chunks.size(c) + (last ? rows : 0);
    const bool fetching = last ? last_slab : first_slab;
    Ahead ahead = fetching ? Ahead(next, SIDE * chunks.size(last ? 0 : c + 1), calls) : Ahead();
    for (int64_t first = 0; first < rows; first += GROUP) {
      const int64_t size = std::min(GROUP, rows - first);
      const char* from = x + first * stride + 4 * step;
      // Those of a single chunk are read at once: their place stays in the nearest cache.
      Sum* found = chunks.parts == 1 ? sums : sums + first * PANEL;
      char* to = reinterpret_cast<char*>(found);
      if (size <= SIDE) add_tiles<Kind, 1>(from, stride, size, some, chunk, to, STEP, c == 0, ahead);
      else add_tiles<Kind, 2>(from, stride, size, some, chunk, to, STEP, c == 0, ahead);
      for (int64_t r = 0; last && r < size; r++) {
        ahead.fetch();
        read(first + r, found + r * PANEL);
      }
    }
  }
}

// Multiplies a slab of rows with a panel, by tiles if the processor has them for this kind: calls
// read(row, its sums [PANEL]) for each. x, stride, panel, first_slab, last_slab: as add_panel's. sums
// [rows][PANEL]: memory.
template <class Kind, class Read>
void multiply_rows(const typename Kind::Row* x, int64_t stride, int64_t rows, int64_t steps,
                   const typename Kind::Weight* panel, typename Kind::Sum* sums, bool first_slab,
                   bool last_slab, const Read& read) {
  if constexpr (!std::is_void_v<typename Kind::Tiles>)
    if (AMX)
      return multiply_by_tiles<typename Kind::Tiles>(
          reinterpret_cast<const char*>(x), stride * sizeof *x, rows, steps,
          reinterpret_cast<const char*>(panel), sums, first_slab, last_slab, read);
  std::memset(sums, 0, rows * PANEL * sizeof *sums);
  add_panel<Kind>(x, stride, rows, steps, panel, sums, first_slab, last_slab);
  for (int64_t r = 0; r < rows; r++) read(r, sums + r * PANEL);
}

}  // namespace
