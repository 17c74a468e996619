// The likeliest token of each row of logits, in one pass: they are read once, as they are.

#include <limits>

#include "vectors.h"

namespace {

constexpr int64_t PART = 2048;  // numbers whose largest is kept, and which are searched for it again

template <class E>
void find_largest(const typename E::Number* row, int64_t size, int64_t* at, bool* finite) {
  // 0 x anything finite is 0, and NaN otherwise.
  Vector rests = spread(0.0f);
  float most = -std::numeric_limits<float>::infinity();
  int64_t best = 0;
  for (int64_t begin = 0; begin < size; begin += PART) {
    const int64_t end = std::min(begin + PART, size), whole = begin + (end - begin) / LANES * LANES;
    Vector highest = spread(most);
    for (int64_t i = begin; i < whole; i += LANES) {
      const Vector x = E::get(row + i);
      highest = larger(x, highest), rests = fma(x, spread(0.0f), rests);
    }
    float found = largest(highest);
    for (int64_t i = whole; i < end; i++) {
      found = std::max(found, E::one(row[i]));
      rests = rests + spread(E::one(row[i]) * 0.0f);
    }
    if (found > most) most = found, best = begin;
  }
  const int64_t last = std::min(best + PART, size);
  for (*at = best; *at < last && E::one(row[*at]) != most; ++*at) {}
  if (*at == last) *at = best;  // nothing is above -infinity
  *finite = sum(rests) == 0;
}

template <class E>
void find_all(const void* logits, int64_t rows, int64_t size, int64_t* at, bool* finite,
              int64_t threads) {
  const auto* numbers = static_cast<const typename E::Number*>(logits);
#pragma omp parallel for schedule(static) if (rows > 1) num_threads(static_cast<int>(threads))
  for (int64_t r = 0; r < rows; r++)
    find_largest<E>(numbers + r * size, size, at + r, finite + r);
}

}  // namespace

extern "C" {

// logits [rows, size], in bfloat16 if `narrow`, else in float32; at [rows]: of the largest, of equals
// the first; finite [rows]: whether all numbers are. Where they are not, `at` is any.
void find_likeliest(int narrow, const void* logits, int64_t rows, int64_t size, int64_t* at,
                    bool* finite, int64_t threads) {
  (narrow ? find_all<BFloat16> : find_all<Float32>)(logits, rows, size, at, finite, threads);
}
}
