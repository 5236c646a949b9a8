#include "fake_cuda/ptx.h"

#include <algorithm>
#include <sstream>

#include "fake_cuda/ptx_machine.h"

namespace mcc::test {
namespace ptx {

namespace {

// Of arrays in a thread's own memory; code may tell their places apart by the lower bits.
constexpr size_t kAlignment = 64;

}  // namespace

void Parser::parse(const std::string& text) {
  std::istringstream lines(text);
  Function* f = nullptr;
  std::string held;
  for (std::string line; std::getline(lines, line);) {
    if (size_t comment = line.find("//"); comment != std::string::npos) line.resize(comment);
    line = trimmed(line);
    if (line.empty()) continue;
    // An instruction may take several lines.
    line = held + line;
    held.clear();
    if (f != nullptr && line[0] != '.' &&
        std::string_view(";:{}()").find(line.back()) == std::string_view::npos) {
      held = line + " ";
      continue;
    }
    if (line.find(".entry ") != std::string::npos) {
      std::string name = line.substr(line.find(".entry ") + 7);
      f = &functions[name.substr(0, name.find_first_of("( "))];
      continue;
    }
    if (line.find(".func ") != std::string::npos) throw Bad("functions: " + line);
    if (line.find(".shared ") != std::string::npos && line[0] == '.') {
      add_shared(line);
      continue;
    }
    if (f == nullptr || line == "{" || line == "}" || line == ")" || line == "(") continue;
    if (line.starts_with(".param")) {
      std::string name = line.substr(line.find_last_of(" \t") + 1);
      if (name.back() == ',') name.pop_back();
      const size_t open = name.find('[');
      f->param_bytes.push_back(open == std::string::npos ? 8 : array_bytes(name));
      f->params.emplace(name.substr(0, open), f->params.size());
    } else if (line.starts_with(".reg")) {
      add_registers(*f, line);
    } else if (line.starts_with(".local")) {
      f->locals[array_name(line)] = f->local_bytes;
      f->local_bytes += (array_bytes(line) + kAlignment - 1) / kAlignment * kAlignment;
    } else if (line.starts_with(".reqntid")) {
      std::sscanf(line.c_str(), ".reqntid %u, %u, %u", &f->block[0], &f->block[1], &f->block[2]);
    } else if (line[0] == '.') {
      continue;  // .loc, ...
    } else if (line.back() == ':') {
      f->labels[line.substr(0, line.size() - 1)] = f->steps.size();
    } else {
      pending_.push_back({f, f->steps.size(), line});
      f->has_products |= line.find("wgmma.mma_async") != std::string::npos;
      f->steps.emplace_back();
    }
  }
  // Labels are known now.
  for (const Pending& p : pending_)
    decode(*p.function, p.step, p.text);
}

void Parser::add_shared(const std::string& line) {
  const size_t bytes = array_bytes(line);
  constexpr size_t kMostStatic = 48 << 10;
  if (bytes > kMostStatic) throw Bad("more shared memory than an entry may have of its own: " + line);
  shared_bytes = (shared_bytes + 1023) / 1024 * 1024;  // as far as any alignment goes
  shared[array_name(line)] = {shared_bytes, bytes};
  shared_bytes += bytes;
}

void Parser::add_registers(Function& f, const std::string& line) {
  const size_t at = line.find('%'), open = line.find('<');
  const std::string prefix = line.substr(at, open - at);
  if (open == std::string::npos) {
    const std::string name = prefix.substr(0, prefix.find(';'));
    f.registers.emplace(name, static_cast<int>(f.registers.size()));
    return;
  }
  const int count = std::atoi(line.c_str() + open + 1);
  for (int i = 0; i < count; ++i)
    f.registers.emplace(prefix + std::to_string(i), static_cast<int>(f.registers.size()));
}

Read Parser::read(const Function& f, const std::string& o) const {
  if (f.registers.contains(o))
    return [i = static_cast<size_t>(reg(f, o))](const Thread& t) { return t.r[i]; };
  static const std::map<std::string, int> specials = {
      {"%tid.x", 0},  {"%tid.y", 1},  {"%tid.z", 2},  {"%ctaid.x", 3},  {"%ctaid.y", 4},   {"%ctaid.z", 5},
      {"%ntid.x", 6}, {"%ntid.y", 7}, {"%ntid.z", 8}, {"%nctaid.x", 9}, {"%nctaid.y", 10}, {"%nctaid.z", 11}};
  if (auto it = specials.find(o); it != specials.end()) {
    return [i = static_cast<size_t>(it->second)](const Thread& t) -> uint64_t {
      if (i < 3) return t.id[i];
      if (i < 6) return t.block->id[i - 3];
      return i < 9 ? t.block->grid->block[i - 6] : t.block->grid->grid[i - 9];
    };
  }
  // The address of one that is passed by value.
  if (auto it = f.params.find(o); it != f.params.end() && f.param_bytes[it->second] > 8)
    return [i = it->second](const Thread& t) { return t.block->arguments->at(i); };
  if (auto it = f.locals.find(o); it != f.locals.end())
    return [at = it->second](const Thread& t) {
      return (reinterpret_cast<uint64_t>(t.local.data()) + kAlignment - 1) / kAlignment * kAlignment + at;
    };
  if (auto it = shared.find(o); it != shared.end())
    return [at = it->second.first](const Thread& t) {
      return reinterpret_cast<uint64_t>(t.block->shared.data() + at);
    };
  uint64_t value = 0;
  if (o.starts_with("0f")) {
    value = std::strtoull(o.c_str() + 2, nullptr, 16);
  } else if (o.starts_with("0d")) {
    value = std::strtoull(o.c_str() + 2, nullptr, 16);
  } else if (!o.empty() && (o[0] == '-' || (o[0] >= '0' && o[0] <= '9'))) {
    value = o[0] == '-' ? static_cast<uint64_t>(std::strtoll(o.c_str(), nullptr, 0))
                        : std::strtoull(o.c_str(), nullptr, 0);
  } else {
    throw Bad("operand " + o);
  }
  return [value](const Thread&) { return value; };
}

void Parser::decode(Function& f, size_t index, std::string text) {
  Step& step = f.steps[index];
  // "{ .reg .b16 tmp; mov.b32 {%rs1, tmp}, %r1; }": one half of a register, of 32 or of 64 bits.
  for (const std::string_view half : {"{ .reg .b16 tmp;", "{ .reg .b32 tmp;"}) {
    if (!text.starts_with(half)) continue;
    text = trimmed(text.substr(half.size(), text.rfind(';') - half.size()));
    text.replace(text.find("tmp"), 3, "_");
  }
  if (text.back() == ';') text.pop_back();
  if (text[0] == '@') {
    const size_t space = text.find_first_of(" \t");
    step.is_negated = text[1] == '!';
    step.guard = reg(f, text.substr(step.is_negated ? 2 : 1, space - (step.is_negated ? 2 : 1)));
    text = trimmed(text.substr(space));
  }
  const size_t space = std::min(text.find_first_of(" \t"), text.size());
  const std::vector<std::string> op = split(text.substr(0, space), '.');
  const std::vector<std::string> args = split(text.substr(space), ',');
  used_.clear();
  try {
    decode_op(f, step, op, args);
  } catch (const Bad& bad) {
    throw Bad(std::string(bad.what()) + " in: " + text);
  }
  if (f.has_products && op[0] != "wgmma") expect_finished(step, used_, text);
}

// Registers to which a product adds beside the thread belong to it until the thread has waited.
void Parser::expect_finished(Step& step, std::vector<size_t> used, const std::string& text) {
  if (used.empty()) return;
  step.run = [run = std::move(step.run), used = std::move(used), text](Thread& t) {
    for (size_t n = 0; n < used.size() && !t.in_flight.empty(); ++n) {
      if (t.in_flight.contains(used[n]))
        throw Bad("a sum of a product is used before wgmma.wait_group, in: " + text);
    }
    run(t);
  };
}

void Parser::decode_op(Function& f, Step& step, const std::vector<std::string>& op,
                       const std::vector<std::string>& a) {
  const std::string& name = op[0];
  const std::string& type = op.back();
  if (name == "ret" || name == "exit") {
    step.run = [](Thread& t) { t.state = Thread::done; };
  } else if (name == "bra") {
    auto it = f.labels.find(a[0]);
    if (it == f.labels.end()) throw Bad("label");
    step.run = [to = it->second](Thread& t) { t.pc = to; };
  } else if (name == "griddepcontrol") {
    if (type != "wait") throw Bad("griddepcontrol");
    f.waits = true;
    step.run = [](Thread& t) { t.has_waited = true; };
  } else if (name == "bar") {
    step.is_barrier = true;
    step.run = [](Thread& t) { t.state = Thread::at_barrier; };
  } else if (name == "shfl") {
    if (op[2] != "bfly" && op[2] != "down" && op[2] != "idx") throw Bad("shuffle");
    const size_t to = static_cast<size_t>(reg(f, a[0].substr(0, a[0].find('|'))));
    // Segments of the whole warp, of which all lanes are named.
    if (a.size() != 5 || a[3] != "31" || a[4] != "-1") throw Bad("lanes of a shuffle");
    together(f, step, [=, kind = op[2], value = read(f, a[1]), by = read(f, a[2])](const auto& lanes) {
      std::map<size_t, uint64_t> values;
      for (const auto& [lane, t] : lanes)
        values[lane] = value(*t);
      for (const auto& [lane, t] : lanes) {
        const auto distance = static_cast<size_t>(by(*t));
        const size_t other = kind == "bfly"  ? lane ^ distance
                             : kind == "idx" ? distance % 32
                                             : lane + distance;
        auto from = values.find(other < 32 ? other : lane);
        t->r[to] =
            from != values.end() ? from->second : kPoisonWord & 0xffffffff;  // of a lane that is not there
      }
    });
  } else if (name == "ldmatrix") {
    decode_rows(f, step, op, a);
  } else if (name == "mma") {
    decode_mma(f, step, op, a);
  } else if (name == "wgmma") {
    decode_wgmma(f, step, op, a);
  } else if (name == "fence") {
    if (op[1] != "proxy" || op[2] != "async" || op[3] != "shared::cta") throw Bad("fence");
    step.run = [](Thread& t) {
      const size_t self = static_cast<size_t>(&t - t.block->threads.data()) + 1;
      for (size_t unit : t.written) {
        if (t.block->writers[unit] == self) t.block->writers[unit] = 0;
      }
      t.written.clear();
    };
  } else if (name == "mbarrier") {
    decode_mbarrier(f, step, op, a);
  } else if (name == "cp" && op[2] == "bulk") {
    decode_bulk(f, step, op, a);
  } else if (name == "cp") {
    decode_async(f, step, op, a);
  } else if (name == "ld" || name == "st") {
    decode_memory(f, step, op, a);
  } else if (name == "cvta") {
    assign(f, step, a[0], read(f, a[1]));
  } else if (name == "mov") {
    decode_mov(f, step, type, a);
  } else if (name == "cvt") {
    decode_cvt(f, step, op, a);
  } else if (name == "setp") {
    decode_setp(f, step, op[1], type, a);
  } else if (name == "selp") {
    Read x = read(f, a[1]), y = read(f, a[2]), p = read(f, a[3]);
    assign(f, step, a[0], [=](const Thread& t) { return (p(t) & 1) != 0 ? x(t) : y(t); });
  } else if (name == "fma" || name == "mad") {
    decode_mad(f, step, op, a);
  } else if (name == "mul" && op[1] == "wide") {
    Read x = read(f, a[1]), y = read(f, a[2]);
    with_type(type, [&](auto like) {
      using T = decltype(like);
      if constexpr (std::is_integral_v<T>) {
        using W = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
        assign(f, step, a[0],
               [=](const Thread& t) { return static_cast<uint64_t>(W{as<T>(x(t))} * W{as<T>(y(t))}); });
      }
    });
  } else if (name == "mul" && op[1] == "hi") {
    Read x = read(f, a[1]), y = read(f, a[2]);
    with_type(type, [&](auto like) {
      using T = decltype(like);
      if constexpr (std::is_integral_v<T>) {
        using W = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
        assign(f, step, a[0], [=](const Thread& t) {
          return bits_of<T>(static_cast<T>(W{as<T>(x(t))} * W{as<T>(y(t))} >> (8 * sizeof(T))));
        });
      }
    });
  } else if (!decode_arithmetic(f, step, op, a)) {
    throw Bad("instruction");
  }
}

namespace {

// Until the thread waits or is done.
void run_thread(const Function& f, Thread& t) {
  while (t.state == Thread::running) {
    if (t.pc >= f.steps.size()) throw Bad("the end of the kernel is run over");
    const Step& step = f.steps[t.pc++];
    ++t.steps;
    if (step.guard >= 0 && ((t.r[static_cast<size_t>(step.guard)] & 1) != 0) == step.is_negated) continue;
    step.run(t);
  }
}

// Of each warp (or warpgroup) whose threads all stand at the same exchange (or are done).
void exchange(const Function& f, std::vector<Thread>& threads) {
  size_t step = 0;
  for (size_t first = 0; first < threads.size(); first += step) {
    auto collective_of = [&](const Thread& t) {
      return t.state != Thread::at_shuffle
                 ? nullptr
                 : &f.collectives[static_cast<size_t>(f.steps[t.pc - 1].collective)];
    };
    step = 32;
    const Collective* collective = nullptr;
    for (size_t i = first; i < std::min(threads.size(), first + 32) && collective == nullptr; ++i)
      collective = collective_of(threads[i]);
    if (collective == nullptr) continue;
    step = collective->threads;
    if (first % step != 0) throw Bad("an exchange of other threads than a warpgroup's");
    std::map<size_t, Thread*> lanes;
    for (size_t i = first; i < std::min(threads.size(), first + step); ++i) {
      const Collective* own = collective_of(threads[i]);
      if (threads[i].state == Thread::done)
        throw Bad("an exchange of a warp of which thread " + std::to_string(i) + " has ended");
      if (own != nullptr && own != collective) throw Bad("threads of a warp at different exchanges");
      if (threads[i].state == Thread::running || threads[i].state == Thread::at_barrier)
        throw Bad("an exchange without all of a warp");
      if (own != nullptr) lanes.emplace(i - first, &threads[i]);
    }
    collective->run(lanes);
    for (const auto& [lane, thread] : lanes)
      thread->state = Thread::running;
  }
}

// Lets threads go on behind a barrier, to which those of a warp have to come together (bar.sync is barrier.sync.aligned).
void release(std::vector<Thread>& threads) {
  constexpr size_t kWarp = 32;
  const Thread* first = nullptr;  // of its warp
  for (size_t i = 0; i < threads.size(); ++i) {
    if (i % kWarp == 0) first = nullptr;
    Thread& t = threads[i];
    if (t.state != Thread::at_barrier) continue;
    if (first == nullptr) first = &t;
    if (t.pc != first->pc) throw Bad("threads of a warp at different barriers");
  }
  for (Thread& t : threads)
    if (t.state == Thread::at_barrier) t.state = Thread::running;
}

void run_block(const Function& f, Block& block) {
  while (true) {
    bool waits_at_shuffle = false, is_done = true;
    for (Thread& t : block.threads) {
      run_thread(f, t);
      waits_at_shuffle |= t.state == Thread::at_shuffle;
      is_done &= t.state == Thread::done;
    }
    if (is_done) return;
    if (waits_at_shuffle) {
      exchange(f, block.threads);
      continue;
    }
    release(block.threads);
    if (block.shadow) block.shadow->pass_barrier();
  }
}

}  // namespace
}  // namespace ptx

using namespace ptx;

struct PtxModule {
  std::map<std::string, Function> functions;
  size_t shared_bytes = 0;
};

int ptx_version(const char* image) {
  const char* at = std::strstr(image, ".version ");
  if (std::memcmp(image,
                  "\x7f"
                  "ELF",
                  4) == 0 ||
      at == nullptr)
    return 0;
  const double version = std::atof(at + 9);
  return static_cast<int>(version * 10 + 0.5);
}

bool ptx_suits(const char* text, int sm) {
  constexpr const char* kTarget = ".target sm_";
  const char* at = std::strstr(text, kTarget);
  if (at == nullptr) return false;
  char* end = nullptr;
  const long target = std::strtol(at + std::strlen(kTarget), &end, 10);
  return *end == 'a' ? target == sm : target <= sm;
}

std::shared_ptr<const PtxModule> parse_ptx(const std::string& text, std::string* problem) {
  Parser parser;
  parser.version = ptx_version(text.c_str());
  try {
    parser.parse(text);
    for (const auto& [name, f] : parser.functions)
      if (f.waits && f.reads_cached) throw Bad(name + " waits for the launches before it, and reads by way of the read-only cache");
  } catch (const Bad& bad) {
    *problem = bad.what();
    return nullptr;
  }
  return std::make_shared<PtxModule>(PtxModule{std::move(parser.functions), parser.shared_bytes});
}

bool ptx_waits(const PtxModule& module, const std::string& entry) {
  auto it = module.functions.find(entry);
  return it != module.functions.end() && it->second.waits;
}

int ptx_arguments(const PtxModule& module, const std::string& entry) {
  auto it = module.functions.find(entry);
  return it == module.functions.end() ? -1 : static_cast<int>(it->second.params.size());
}

bool ptx_takes_block(const PtxModule& module, const std::string& entry,
                     const std::array<unsigned, 3>& block) {
  auto it = module.functions.find(entry);
  return it == module.functions.end() || it->second.block[0] == 0 || it->second.block == block;
}

size_t ptx_argument_bytes(const PtxModule& module, const std::string& entry, int argument) {
  return module.functions.at(entry).param_bytes.at(static_cast<size_t>(argument));
}

namespace {

Block make_block(const PtxGrid& grid, const std::vector<uint64_t>& arguments,
                 const std::function<bool(uint64_t, size_t)>& is_device) {
  Block block;
  block.grid = &grid;
  block.arguments = &arguments;
  block.is_device = &is_device;
  block.threads.resize(size_t{grid.block[0]} * grid.block[1] * grid.block[2]);
  return block;
}

// As a GPU begins one: what is not written holds no numbers.
void begin(const Function& f, size_t shared_bytes, Block& block) {
  const unsigned* extents = block.grid->block;
  block.shared.assign(shared_bytes + block.grid->dynamic_shared, kPoison);
  if (block.shadow) block.shadow->begin_block(block.shared.data(), block.shared.size(), block.threads.size());
  block.writers.assign(block.shared.size() / 16 + 1, 0);
  block.mbarriers.clear();
  block.waits = f.waits;
  for (size_t i = 0; i < block.threads.size(); ++i) {
    Thread& t = block.threads[i];
    t.r.assign(f.registers.size(), kPoisonWord);
    t.local.assign(f.local_bytes == 0 ? 0 : f.local_bytes + kAlignment - 1, kPoison);
    t.block = &block;
    t.pc = 0;
    t.steps = 0;
    t.groups.assign(1, {});
    t.products.assign(1, {});
    t.in_flight.clear();
    t.is_fenced = false;
    t.has_waited = false;
    t.written.clear();
    t.state = Thread::running;
    t.id[0] = static_cast<unsigned>(i % extents[0]);
    t.id[1] = static_cast<unsigned>(i / extents[0] % extents[1]);
    t.id[2] = static_cast<unsigned>(i / extents[0] / extents[1]);
  }
}

}  // namespace

std::string run_ptx(const PtxModule& module, const std::string& entry, const PtxGrid& grid,
                    const std::vector<uint64_t>& arguments,
                    const std::function<bool(uint64_t, size_t)>& is_device, PtxTraffic* traffic) {
  const Function& f = module.functions.at(entry);
  Block block = make_block(grid, arguments, is_device);
  Shadow shadow(is_device);
  block.shadow = &shadow;
  Traffic counted;
  if (traffic) block.traffic = &counted;
  try {
    for (block.id[2] = 0; block.id[2] < grid.grid[2]; ++block.id[2]) {
      for (block.id[1] = 0; block.id[1] < grid.grid[1]; ++block.id[1]) {
        for (block.id[0] = 0; block.id[0] < grid.grid[0]; ++block.id[0]) {
          begin(f, module.shared_bytes, block);
          run_block(f, block);
          if (traffic) *traffic = counted.finish();
        }
      }
    }
  } catch (const Bad& bad) {
    return bad.what();
  }
  return "";
}

PtxCounts count_ptx(const PtxModule& module, const std::string& entry, const PtxGrid& grid,
                    const std::vector<uint64_t>& arguments,
                    const std::function<bool(uint64_t, size_t)>& is_device) {
  const Function& f = module.functions.at(entry);
  Block block = make_block(grid, arguments, is_device);
  Counter counter;
  block.counter = &counter;
  for (int i = 0; i < 3; ++i)
    block.id[i] = grid.grid[i] / 2;
  begin(f, module.shared_bytes, block);
  std::string problem;
  try {
    run_block(f, block);
  } catch (const Bad& bad) {
    problem = bad.what();
  }
  std::vector<uint64_t> steps;
  for (const Thread& t : block.threads)
    steps.push_back(t.steps);
  PtxCounts counts = counter.finish(steps);
  counts.problem = problem;
  return counts;
}

}  // namespace mcc::test
