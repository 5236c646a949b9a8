#include "tensor/sizes.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "support/text.h"
#include "tensor/visit.h"

namespace mcc::tensor {
namespace {

constexpr const char* kAnnotation = "sizes";
constexpr const char* kSamples = "samples";

// Of a function that says nothing of its dimensions.
constexpr int64_t kUsualSize = 128;

}  // namespace

void learn_size(Analyzer& facts, const Var& dim, const SizeRange& range) {
  if (range.has_bound())
    facts.bind(dim, range.min, range.max - range.min + 1);
  else
    facts.assume(dim >= Expr(range.min));
}

void mark_sizes(Func& f, const std::vector<SizeRange>& ranges) {
  MCC_CHECK(ranges.size() == f.dims.size(), f.name, ": ", ranges.size(), " ranges for ", f.dims.size(),
            " dimensions");
  std::vector<std::string> texts;
  for (const SizeRange& range : ranges) {
    texts.push_back(text(range.min, "..", range.has_bound() ? std::to_string(range.max) : ""));
    if (range.typical > 0) texts.back() += text("~", range.typical);
  }
  if (!texts.empty()) f.annotations[kAnnotation] = join(texts, " ");
}

std::optional<std::vector<SizeRange>> sizes_of(const Func& f) {
  const auto entry = f.annotations.find(kAnnotation);
  const auto* texts = entry == f.annotations.end() ? nullptr : std::get_if<std::string>(&entry->second);
  if (texts == nullptr) return std::nullopt;
  std::vector<SizeRange> ranges;
  std::istringstream words(*texts);
  char dot = 0;
  for (SizeRange range; words >> range.min >> dot >> dot; ranges.push_back(range), range = {}) {
    range.max = kLargestSize;
    if (words.peek() != '~') words >> range.max;
    if (!words.eof() && words.peek() == '~') words >> dot >> range.typical;
    if (!words || range.typical < 0 || range.max < range.min) return std::nullopt;
  }
  return ranges.size() == f.dims.size() ? std::optional(ranges) : std::nullopt;
}

int64_t typical_size(const SizeRange& range) {
  if (range.typical > 0) return std::max(range.typical, range.min);
  const auto at_least_one = [](int64_t size) { return static_cast<double>(std::max<int64_t>(size, 1)); };
  const double middle = std::sqrt(at_least_one(range.min) * at_least_one(range.max));
  return std::clamp(static_cast<int64_t>(middle), range.min, range.max);
}

void mark_samples(Func& f, const std::vector<std::vector<int64_t>>& samples) {
  std::vector<std::string> texts;
  for (const std::vector<int64_t>& sizes : samples) {
    MCC_CHECK(sizes.size() == f.dims.size(), f.name, ": ", sizes.size(), " sizes for ", f.dims.size(),
              " dimensions");
    texts.push_back(join(sizes, " "));
  }
  if (!texts.empty()) f.annotations[kSamples] = join(texts, ", ");
}

std::vector<std::vector<int64_t>> samples_of(const Func& f) {
  const auto entry = f.annotations.find(kSamples);
  const auto* texts = entry == f.annotations.end() ? nullptr : std::get_if<std::string>(&entry->second);
  if (texts == nullptr) return {};
  std::vector<std::vector<int64_t>> samples;
  std::istringstream lists(*texts);
  for (std::string list; std::getline(lists, list, ',');) {
    std::istringstream words(list);
    std::vector<int64_t> sizes;
    for (int64_t size = 0; words >> size;)
      sizes.push_back(size);
    const bool is_whole = words.eof() && sizes.size() == f.dims.size();
    const bool are_sizes =
        std::all_of(sizes.begin(), sizes.end(), [](int64_t s) { return s >= 0 && s <= kLargestSize; });
    if (!is_whole || !are_sizes) return {};
    samples.push_back(std::move(sizes));
  }
  return samples;
}

Func at_first_sample(const Func& f) {
  if (f.dims.empty()) return f;
  if (const std::vector<std::vector<int64_t>> samples = samples_of(f); !samples.empty())
    return with_sizes(f, samples[0]);
  const std::optional<std::vector<SizeRange>> ranges = sizes_of(f);
  std::vector<int64_t> sizes(f.dims.size(), kUsualSize);
  for (size_t i = 0; ranges && i < sizes.size(); ++i)
    sizes[i] = typical_size((*ranges)[i]);
  return with_sizes(f, sizes);
}

Analyzer size_facts(const Func& f) {
  Analyzer facts;
  const std::optional<std::vector<SizeRange>> ranges = sizes_of(f);
  for (size_t i = 0; ranges && i < f.dims.size(); ++i)
    learn_size(facts, f.dims[i], (*ranges)[i]);
  return facts;
}

const Var& thread_count() {
  static const Var count("threads");
  return count;
}

namespace {

Func with_values(const Func& f, const VarMap& dims) {
  BufferMap buffers;
  auto sized = [&](const Buffer& b) {
    std::vector<Expr> shape;
    for (const Expr& d : b.shape())
      shape.push_back(simplify(substitute(d, dims)));
    return buffers[b.get()] = Buffer(b.name(), b.element(), std::move(shape), b.scope(), b->alignment);
  };
  Func out = f;
  for (Buffer& b : out.params)
    b = sized(b);
  for (Buffer& b : out.allocs)
    b = sized(b);
  out.body = replace_buffers(substitute(f.body, dims), buffers);
  return out;
}

}  // namespace

Func with_sizes(const Func& f, const std::vector<int64_t>& sizes) {
  MCC_CHECK(sizes.size() == f.dims.size(), f.name, ": ", sizes.size(), " sizes for ", f.dims.size(),
            " dimensions");
  VarMap dims;
  for (size_t i = 0; i < sizes.size(); ++i)
    dims[f.dims[i].get()] = sizes[i];
  Func out = with_values(f, dims);
  out.dims.clear();
  out.annotations.erase(kAnnotation);
  out.annotations.erase(kSamples);
  return out;
}

Func with_size(const Func& f, const Var& dim, int64_t size) {
  return with_values(f, {{dim.get(), Expr(size)}});
}

}  // namespace mcc::tensor
