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

constexpr int64_t TILE = 16;             // rows, outputs, or steps of four bytes
constexpr int64_t TILE_AHEAD = 1 << 13;  // bytes; a row in one tile asks for weights so far ahead

template <int TO>
inline INLINE void load_tile(const void* at, int64_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(TO), "r"(at), "r"(stride) : "memory");
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

// Rows are in one tile or two (TILES), and meet four tiles of outputs at once or two. Tiles 0 to 3
// are the sums, 4 the rows, with two tiles 5 as well, and the others weights.
template <int TILES>
void configure_tiles(int64_t rows) {
  struct alignas(64) {
    uint8_t palette = 1, unused[15] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
  } shapes;
  for (int i = 0; i < 8; i++) {
    const bool second = i < 4 ? i * TILES >= 4 : i == 5;  // of the tiles of rows
    const bool weights = i >= 4 + TILES;
    shapes.bytes[i] = LINE;
    shapes.rows[i] = weights || (TILES == 2 && !second) ? TILE : TILES == 2 ? rows - TILE : rows;
  }
  asm volatile("ldtilecfg %0" ::"m"(shapes));
}

// x, panel and sums in bytes; rows, at most 16 of TILES, are `stride` apart, their sums STEP.
template <class Kind, int TILES>
void add_tiles(const char* x, int64_t stride, int64_t rows, int64_t steps, const char* panel,
               char* sums, Ahead& ahead) {
  constexpr int COLUMNS = 4 / TILES;
  configure_tiles<TILES>(rows);
  const auto multiply = [&](const char* x, int64_t stride, const char* weights) INLINE {
    each<TILES>([&](auto r) INLINE { load_tile<4 + r>(x + r * TILE * stride, stride); });
    each<COLUMNS>([&](auto j) INLINE {
      constexpr int J = decltype(j)::value, FROM = 4 + TILES + J % (4 - TILES);
      load_tile<FROM>(weights + J * LINE, STEP);
      each<TILES>([&](auto r) INLINE {
        constexpr int R = decltype(r)::value;
        Kind::template add<R * COLUMNS + J, 4 + R, FROM>();
      });
      ahead.fetch();
    });
  };
  for (int64_t column = 0; column < STEP; column += COLUMNS * LINE) {
    const auto each_sum = [&](auto move) INLINE {
      each<4>([&](auto i) INLINE {
        move(i, sums + i / COLUMNS * TILE * STEP + column + i % COLUMNS * LINE);
      });
    };
    each_sum([](auto i, char* at) INLINE { load_tile<decltype(i)::value>(at, STEP); });
    int64_t step = 0;
    for (; step + TILE <= steps; step += TILE)
      multiply(x + 4 * step, stride, panel + column + step * STEP);
    if (step < steps) {  // what lies behind the last ones is not multiplied
      alignas(64) char some[TILES * TILE * LINE] = {}, weights[TILE * STEP] = {};
      for (int64_t r = 0; r < rows; r++)
        std::memcpy(some + r * LINE, x + r * stride + 4 * step, 4 * (steps - step));
      std::memcpy(weights, panel + step * STEP, (steps - step) * STEP);
      multiply(some, LINE, weights + column);
    }
    each_sum([](auto i, char* at) INLINE { store_tile<decltype(i)::value>(at, STEP); });
  }
}

// As add_panel, with x, its stride, panel and sums in bytes.
template <class Kind>
Ahead add_panel_by_tiles(const char* x, int64_t stride, int64_t rows, int64_t steps,
                         const char* panel, char* sums, bool first_slab, bool last_slab) {
  const Division groups(rows, 2 * TILE);
  const Division chunks((steps + TILE - 1) / TILE, LARGE / STEP / TILE);
  Ahead ahead;
  for (int64_t c = 0; c < chunks.parts; c++) {
    const bool last = c + 1 == chunks.parts;
    const int64_t step = TILE * chunks.first(c);
    const int64_t some = std::min(TILE * chunks.size(c), steps - step);
    const char* chunk = panel + step * STEP;
    const char* next = chunk + (rows <= TILE ? TILE_AHEAD : some * STEP);
    const int64_t calls = groups.parts * 4 * chunks.size(c) + (last ? rows : 0);
    const bool fetching = last ? last_slab : first_slab;
    ahead = fetching ? Ahead(next, TILE * chunks.size(last ? 0 : c + 1), calls) : Ahead();
    for (int64_t g = 0; g < groups.parts; g++) {
      const int64_t first = groups.first(g), size = groups.size(g);
      const char* from = x + first * stride + 4 * step;
      char* to = sums + first * STEP;
      if (size <= TILE) add_tiles<Kind, 1>(from, stride, size, some, chunk, to, ahead);
      else add_tiles<Kind, 2>(from, stride, size, some, chunk, to, ahead);
    }
  }
  asm volatile("tilerelease" ::: "memory");  // or the system would save them at every switch
  return ahead;
}

// As add_panel, by tiles if the processor has them for this kind. What is left to fetch is for
// whoever reads the sums, once for each row.
template <class Kind>
Ahead add_rows(const typename Kind::Row* x, int64_t stride, int64_t rows, int64_t steps,
               const typename Kind::Weight* panel, typename Kind::Sum* sums, bool first_slab,
               bool last_slab) {
  if constexpr (!std::is_void_v<typename Kind::Tiles>)
    if (AMX)
      return add_panel_by_tiles<typename Kind::Tiles>(
          reinterpret_cast<const char*>(x), stride * sizeof *x, rows, steps,
          reinterpret_cast<const char*>(panel), reinterpret_cast<char*>(sums), first_slab,
          last_slab);
  add_panel<Kind>(x, stride, rows, steps, panel, sums, first_slab, last_slab);
  return Ahead();
}

}  // namespace
