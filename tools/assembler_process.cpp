#include "tools/assembler_process.h"

#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "support/text.h"
#include "tools/console.h"
#include "tools/program.h"
#include "tools/worker_process.h"

namespace mcc::tools {

namespace {

using codegen::Cubin;
using Json = nlohmann::json;

constexpr int kAttempts = 2;
const double kLongest = codegen::AssemblerLimits().kernel_seconds;

constexpr const char* kDigits = "0123456789abcdef";

std::string to_hex(const std::vector<char>& bytes) {
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    out += kDigits[static_cast<unsigned char>(byte) >> 4];
    out += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return out;
}

std::vector<char> from_hex(const std::string& digits) {
  auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<char> out(digits.size() / 2);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<char>(value(digits[2 * i]) << 4 | value(digits[2 * i + 1]));
  return out;
}

Json to_json(const Cubin& cubin) {
  Json entries = Json::array();
  for (const codegen::EntryFigures& e : cubin.entries)
    entries.push_back({e.entry, e.registers, e.shared_bytes, e.stack_bytes, e.spill_stores, e.spill_loads});
  return {{"arch", cubin.arch}, {"cubin", to_hex(cubin.bytes)}, {"entries", entries}, {"losses", cubin.losses}};
}

Cubin to_cubin(const Json& json) {
  Cubin cubin;
  cubin.arch = json.at("arch");
  cubin.bytes = from_hex(json.at("cubin").get_ref<const std::string&>());
  for (const Json& e : json.at("entries"))
    cubin.entries.push_back({e.at(0), e.at(1), e.at(2), e.at(3), e.at(4), e.at(5)});
  cubin.losses = json.at("losses");
  return cubin;
}

// Of the kind environment, as all that an assembler says.
Json to_json(const Diagnostics& errors) {
  return {{"error", {{"where", errors[0].where}, {"message", errors[0].message}, {"hint", errors[0].hint}}}};
}

Diagnostic to_error(const Json& json) {
  return {ErrorKind::environment, json.at("where"), json.at("message"), json.at("hint")};
}

class IsolatedAssembler : public codegen::Assembler {
 public:
  IsolatedAssembler(const Assembler& assembler, std::vector<std::string> command) : command_(std::move(command)) {
    name_ = assembler.name();
    if (command_.empty()) command_ = {own_program(), "assemble-worker"};
    command_.push_back(assembler.library());
  }

 protected:
  // The process knows what stands in for a dropped architecture, so none is unknown here.
  Result<Cubin> run(const std::string& ptx, const std::string& arch, bool*) const override {
    const std::string request = Json{{"arch", arch}, {"ptx", ptx}}.dump();
    for (int attempt = 1;; ++attempt) {
      Result<std::unique_ptr<WorkerProcess>> process = take();
      if (!process.ok()) return process.errors();
      std::string answer;
      WorkerProcess::Received received = WorkerProcess::Received::closed;
      if ((*process)->send(request)) received = (*process)->receive(answer, kLongest);
      if (received == WorkerProcess::Received::line) {
        Result<Cubin> cubin = decode(answer);
        std::lock_guard lock(mutex_);
        idle_.push_back(std::move(*process));
        return cubin;
      }
      const std::string how = received == WorkerProcess::Received::timeout ? text("took more than ", kLongest, " s")
                                                                           : "was " + (*process)->end_text();
      if (attempt == kAttempts) {
        return Diagnostic{ErrorKind::environment, "", text("the process of ", name_, " ", how, " on PTX for ", arch, ", ", attempt, " times"),
                          text(codegen::kWithoutCubin, "; $CUDA_HOME names another CUDA to assemble with")};
      }
      say(text("warning: the process of ", name_, " ", how, " on PTX for ", arch, "; a new one tries again"));
    }
  }

 private:
  Result<std::unique_ptr<WorkerProcess>> take() const {
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<WorkerProcess> process = std::move(idle_.back());
        idle_.pop_back();
        return process;
      }
    }
    Result<WorkerProcess> started = WorkerProcess::start(command_);
    if (!started.ok()) return started.errors();
    return std::make_unique<WorkerProcess>(std::move(*started));
  }

  Result<Cubin> decode(const std::string& answer) const {
    const Json json = Json::parse(answer, nullptr, /*allow_exceptions=*/false);
    if (json.contains("error")) return to_error(json["error"]);
    if (json.contains("cubin")) return to_cubin(json);
    return Diagnostic{ErrorKind::environment, "", text("the process of ", name_, " wrote what is no answer: ", answer.substr(0, 100)), ""};
  }

  std::vector<std::string> command_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<WorkerProcess>> idle_;
};

}  // namespace

std::unique_ptr<codegen::Assembler> isolate(std::unique_ptr<codegen::Assembler> assembler,
                                            std::vector<std::string> command) {
  if (assembler == nullptr || assembler->library().empty()) return assembler;
  return std::make_unique<IsolatedAssembler>(*assembler, std::move(command));
}

int serve_assembler(const std::string& library, int in, int out) {
  const std::unique_ptr<codegen::Assembler> assembler = codegen::Assembler::open(library);
  std::FILE* requests = ::fdopen(in, "r");
  std::FILE* answers = ::fdopen(out, "w");
  if (assembler == nullptr || requests == nullptr || answers == nullptr) {
    return report_errors({{ErrorKind::environment, library, "is no nvJitLink that can be loaded", ""}}, false);
  }
  char* line = nullptr;
  size_t room = 0;
  while (::getline(&line, &room, requests) > 0) {
    const Json request = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!request.contains("ptx") || !request["ptx"].is_string() || !request.contains("arch") || !request["arch"].is_string())
      return report_errors({{ErrorKind::bad_input, "stdin", "expected {\"arch\": .., \"ptx\": ..} in each line", ""}}, false);
    const Result<Cubin> cubin = assembler->assemble(request["ptx"], request["arch"]);
    const std::string answer = (cubin.ok() ? to_json(*cubin) : to_json(cubin.errors())).dump() + "\n";
    if (std::fwrite(answer.data(), 1, answer.size(), answers) != answer.size() || std::fflush(answers) != 0) break;
  }
  std::free(line);
  return 0;
}

}  // namespace mcc::tools
