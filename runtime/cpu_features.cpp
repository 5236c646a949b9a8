#include "runtime/cpu_features.h"

#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace mcc::runtime {

namespace {

#if defined(__x86_64__)

enum Register { eax, ebx, ecx, edx };

// Register state that the operating system must save: bits of XCR0.
constexpr uint64_t no_state = 0;
constexpr uint64_t ymm_state = 0x6;
constexpr uint64_t zmm_state = 0xe6;
constexpr uint64_t tile_state = 0x60000;

// Where CPUID says it (Intel's and AMD's manuals, CPUID instruction).
struct Feature {
  const char* name;
  uint32_t leaf, subleaf;
  Register where;
  uint32_t bit;
  uint64_t state;
};

constexpr Feature features[] = {
    {"sse3", 1, 0, ecx, 0, no_state},
    {"ssse3", 1, 0, ecx, 9, no_state},
    {"sse4.1", 1, 0, ecx, 19, no_state},
    {"sse4.2", 1, 0, ecx, 20, no_state},
    {"popcnt", 1, 0, ecx, 23, no_state},
    {"avx", 1, 0, ecx, 28, ymm_state},
    {"avx2", 7, 0, ebx, 5, ymm_state},
    {"fma", 1, 0, ecx, 12, ymm_state},
    {"f16c", 1, 0, ecx, 29, ymm_state},
    {"bmi", 7, 0, ebx, 3, no_state},
    {"bmi2", 7, 0, ebx, 8, no_state},
    {"lzcnt", 0x80000001, 0, ecx, 5, no_state},
    {"movbe", 1, 0, ecx, 22, no_state},
    {"adx", 7, 0, ebx, 19, no_state},
    {"avxvnni", 7, 1, eax, 4, ymm_state},
    {"avxvnniint8", 7, 1, edx, 4, ymm_state},
    {"avxifma", 7, 1, eax, 23, ymm_state},
    {"avxneconvert", 7, 1, edx, 5, ymm_state},
    {"gfni", 7, 0, ecx, 8, no_state},
    {"avx512f", 7, 0, ebx, 16, zmm_state},
    {"avx512cd", 7, 0, ebx, 28, zmm_state},
    {"avx512bw", 7, 0, ebx, 30, zmm_state},
    {"avx512dq", 7, 0, ebx, 17, zmm_state},
    {"avx512vl", 7, 0, ebx, 31, zmm_state},
    {"avx512ifma", 7, 0, ebx, 21, zmm_state},
    {"avx512vbmi", 7, 0, ecx, 1, zmm_state},
    {"avx512vbmi2", 7, 0, ecx, 6, zmm_state},
    {"avx512vnni", 7, 0, ecx, 11, zmm_state},
    {"avx512bitalg", 7, 0, ecx, 12, zmm_state},
    {"avx512vpopcntdq", 7, 0, ecx, 14, zmm_state},
    {"avx512bf16", 7, 1, eax, 5, zmm_state},
    {"avx512fp16", 7, 0, edx, 23, zmm_state},
    {"avx512vp2intersect", 7, 0, edx, 8, zmm_state},
    {"amx-tile", 7, 0, edx, 24, tile_state},
    {"amx-int8", 7, 0, edx, 25, tile_state},
    {"amx-bf16", 7, 0, edx, 22, tile_state},
    {"amx-fp16", 7, 1, eax, 21, tile_state},
};

constexpr bool is_listed(const char* name) {
  for (const Feature& feature : features) {
    const char* a = feature.name;
    const char* b = name;
    while (*a != 0 && *a == *b)
      ++a, ++b;
    if (*a == *b) return true;
  }
  return false;
}
#define MCC_LISTED(name) static_assert(is_listed(name));
MCC_CPU_FEATURES(MCC_LISTED)
#undef MCC_LISTED

const Feature* find_feature(const char* name) {
  for (const Feature& feature : features) {
    if (std::strcmp(feature.name, name) == 0) return &feature;
  }
  return nullptr;
}

uint64_t saved_state() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c >> 27 & 1) == 0) return 0;  // no OSXSAVE
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

bool has_feature(const Feature& feature, uint64_t state) {
  uint32_t registers[4] = {};
  if (__get_cpuid_count(feature.leaf, feature.subleaf, &registers[eax], &registers[ebx], &registers[ecx],
                        &registers[edx]) == 0) {
    return false;
  }
  return (registers[feature.where] >> feature.bit & 1) != 0 && (state & feature.state) == feature.state;
}

// Linux gives a process tile registers only when it asks.
bool request_tiles() {
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

#endif

void append_name(mcc_error* list, const char* name) {
  append_message(list, "%s%s", list->message[0] == 0 ? "" : ", ", name);
}

}  // namespace

mcc_status check_cpu_features(const Plan& plan, mcc_error* error) {
  mcc_error missing, unknown;
  succeed(&missing);
  succeed(&unknown);
#if defined(__x86_64__)
  const uint64_t state = saved_state();
  bool needs_tiles = false;
  for (uint64_t i = 0; i < plan.features_count; ++i) {
    const char* name = plan.text(plan.features[i]);
    const Feature* feature = find_feature(name);
    if (feature == nullptr) {
      append_name(&unknown, name);
      continue;
    }
    if (!has_feature(*feature, state)) append_name(&missing, name);
    needs_tiles |= feature->state == tile_state;
  }
  if (missing.message[0] == 0 && needs_tiles && !request_tiles())
    append_name(&missing, "amx-tile (refused by the kernel)");
#else
  for (uint64_t i = 0; i < plan.features_count; ++i)
    append_name(&unknown, plan.text(plan.features[i]));
#endif
  const char* target = plan.metadata_value("target");
  if (target == nullptr) target = "another CPU";
  if (missing.message[0] != 0) {
    return fail(error, MCC_NOT_HERE, "this CPU lacks %.500s; the model was compiled for %.300s",
                missing.message, target);
  }
  if (unknown.message[0] != 0) {
    return fail(error, MCC_NOT_HERE,
                "the model needs %.500s, which this runtime does not know; it was compiled for %.300s",
                unknown.message, target);
  }
  return MCC_OK;
}

}  // namespace mcc::runtime
