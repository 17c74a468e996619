// Kernels one after the other, with arguments that were recorded.

#include <cstdint>

// calls [count, words]: the address of a kernel's NAME_again (words.h), and its arguments.
extern "C" void play(const int64_t* calls, int64_t count, int64_t words) {
  for (int64_t i = 0; i < count; i++, calls += words)
    reinterpret_cast<void (*)(const int64_t*)>(calls[0])(calls + 1);
}
