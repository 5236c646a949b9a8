// Words of a language model, one after the other: generate MODEL.so --words 1,15,27 [--steps 20] [--room 4096] [--threads 1]
//
// For decoders as exporters write them: inputs are ids, a mask of what there is, maybe positions, and the keys and values of the words
// before, which are the outputs of the run before. One library takes the prompt as a whole and then one word a time. Words are the numbers
// that a tokeniser has for them; the likeliest one is always the next. With --room keys and values are in buffers for so many words, to which
// a run adds its own; else each run copies those before it to memory of its own.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <mcc/mcc.hpp>

namespace {

// Which inputs and outputs are what, by their names and ranks.
struct Roles {
  explicit Roles(const mcc::runtime::Model& model) {
    for (std::size_t i = 0; i < model.input_count(); ++i) {
      const mcc::runtime::TensorInfo info = model.input(i);
      const auto has = [&](const char* word) { return info.name.find(word) != std::string::npos; };
      if (info.dims.size() == 4)
        pasts.push_back(i);
      else if (has("position"))
        positions = i;
      else if (has("mask"))
        mask = i;
      else if (has("ids"))
        ids = i;
    }
    for (std::size_t i = 0; i < model.output_count(); ++i) {
      if (model.output(i).dims.size() == 4) presents.push_back(i);
      if (model.output(i).dims.size() == 3) logits = i;
    }
    if (ids == kNone || mask == kNone || logits == kNone || pasts.empty() || pasts.size() != presents.size())
      throw std::runtime_error(
          "expected a decoder: inputs ids, mask and pasts of four dimensions, outputs logits and as many "
          "presents");
    if (model.input(pasts[0]).dtype != MCC_DTYPE_f32 || model.output(logits).dtype != MCC_DTYPE_f32)
      throw std::runtime_error("expected a decoder of f32");
    const std::vector<std::int64_t> present = model.output(presents[0]).dims;
    heads = present[1], size = present[3];
    if (heads < 0 || size < 0) throw std::runtime_error("expected heads of known number and size");
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t ids = kNone, mask = kNone, positions = kNone, logits = kNone;
  std::vector<std::size_t> pasts, presents;
  std::int64_t heads = 0, size = 0;
};

class Generator {
 public:
  Generator(const std::string& path, int threads, std::int64_t room)
      : model_(path), roles_(model_), session_(model_, options(threads)), room_(room) {
    for (auto* side : {&before_, &after_})
      side->resize(roles_.pasts.size());
    for (std::size_t i = 0; room_ > 0 && i < before_.size(); ++i) {
      const std::string present = model_.output(roles_.presents[i]).name;
      if (model_.metadata("output." + present + ".in_place") != model_.input(roles_.pasts[i]).name)
        throw std::runtime_error("output " + present +
                                 " cannot be in the memory of an input: leave out --room");
      before_[i].resize(static_cast<std::size_t>(roles_.heads * room_ * roles_.size));
    }
  }

  // Takes the words behind those of the calls before; the next one.
  std::int64_t next(std::vector<std::int64_t> words) {
    const auto count = static_cast<std::int64_t>(words.size()), all = held_ + count;
    const std::vector<std::int64_t> mask(static_cast<std::size_t>(all), 1);
    std::vector<std::int64_t> positions(words.size());
    std::iota(positions.begin(), positions.end(), held_);
    session_.set_input(roles_.ids, words.data(), {1, count});
    session_.set_input(roles_.mask, mask.data(), {1, all});
    if (roles_.positions != Roles::kNone) session_.set_input(roles_.positions, positions.data(), {1, count});
    if (room_ > 0 && all > room_) throw std::runtime_error("there are more words than --room is for");
    // What one run writes the next one reads where it is.
    for (std::size_t i = 0; i < before_.size(); ++i) {
      std::vector<float>& present = room_ > 0 ? before_[i] : after_[i];
      if (room_ == 0) present.resize(static_cast<std::size_t>(roles_.heads * all * roles_.size));
      session_.set_input(roles_.pasts[i], before_[i].data(),
                         {1, roles_.heads, room_ > 0 ? room_ : held_, roles_.size});
      session_.set_output_memory(roles_.presents[i], present.data(), present.size() * sizeof(float));
    }
    session_.run();
    if (room_ == 0) std::swap(before_, after_);
    held_ = all;
    const mcc::runtime::Shape shape = session_.output_shape(roles_.logits);
    const float* last = session_.output_data<float>(roles_.logits) + (shape[1] - 1) * shape[2];
    return std::max_element(last, last + shape[2]) - last;
  }

 private:
  static mcc::runtime::SessionOptions options(int threads) {
    mcc::runtime::SessionOptions all;
    all.threads = threads;
    return all;
  }

  mcc::runtime::Model model_;
  Roles roles_;
  mcc::runtime::Session session_;
  std::vector<std::vector<float>> before_, after_;  // keys and values
  std::int64_t held_ = 0;
  const std::int64_t
      room_;  // words that before_ has room for, which is then after_, too; 0: as many as there are
};

std::vector<std::int64_t> numbers(const std::string& list) {
  std::vector<std::int64_t> all;
  std::stringstream in(list);
  for (std::string word; std::getline(in, word, ',');)
    all.push_back(std::stoll(word));
  return all;
}

int run(int count, char** arguments) {
  std::vector<std::int64_t> words;
  std::string path;
  int steps = 20, threads = 0, room = 0;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    const bool has_value = word.rfind("--", 0) == 0 && i + 1 < count;
    if (word == "--words" && has_value)
      words = numbers(arguments[++i]);
    else if (word == "--steps" && has_value)
      steps = std::stoi(arguments[++i]);
    else if (word == "--threads" && has_value)
      threads = std::stoi(arguments[++i]);
    else if (word == "--room" && has_value)
      room = std::stoi(arguments[++i]);
    else
      path = word;
  }
  if (path.empty() || words.empty() || steps < 1 || room < 0) {
    std::fprintf(stderr,
                 "usage: generate MODEL.so --words 1,15,27 [--steps 20] [--room 4096] [--threads 1]\n");
    return 2;
  }
  Generator generator(path, threads, room);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::int64_t word = generator.next(words);
  const auto first = Clock::now();
  std::printf("%lld", static_cast<long long>(word));
  for (int step = 1; step < steps; ++step) {
    word = generator.next({word});
    std::printf(" %lld", static_cast<long long>(word));
  }
  const auto ms = [](Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
  std::printf("\n");
  std::fprintf(stderr, "prompt of %zu words: %.2f ms; then %.2f ms a word\n", words.size(), ms(first - begin),
               steps > 1 ? ms(Clock::now() - first) / (steps - 1) : 0.0);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 3;
  }
}
