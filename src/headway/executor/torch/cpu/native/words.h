// Calls of kernels as words of 64 bits, so that they can be made again (cpu/tape.py).

#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace {

// An argument from its word. Floating numbers are kept as doubles.
template <class T>
T of_word(int64_t word) {
  if constexpr (std::is_pointer_v<T>) return reinterpret_cast<T>(word);
  if constexpr (std::is_floating_point_v<T>) {
    double wide;
    std::memcpy(&wide, &word, sizeof wide);
    return static_cast<T>(wide);
  }
  if constexpr (std::is_integral_v<T>) return static_cast<T>(word);
}

template <class R, class... A, size_t... I>
void call(R (*kernel)(A...), const int64_t* words, std::index_sequence<I...>) {
  kernel(of_word<A>(words[I])...);
}
template <class R, class... A>
void call(R (*kernel)(A...), const int64_t* words) {
  call(kernel, words, std::index_sequence_for<A...>{});
}

}  // namespace

// NAME_again(words): NAME with these arguments.
#define RECORDABLE(NAME) \
  extern "C" void NAME##_again(const int64_t* words) { call(NAME, words); }
