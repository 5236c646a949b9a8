// From a schedule to code for a GPU, as when a model is compiled: the same steps, options and bytes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/device.h"
#include "tuner/pick.h"

namespace mcc::tools {

struct BuiltDevice {
  tuner::TrialError error = tuner::TrialError::none;
  std::string message;
  std::string key;  // hash of the lowered function: equal for equal code
  codegen::DeviceCode code;
  std::optional<codegen::Cubin> cubin;  // where there is an assembler
  double seconds = 0;                   // by the clock
};

// What a GPU of the target cannot launch is rejected: by its grid and memory before there is code, by its registers when
// the assembler has said how many there are. assembler may be null. is_known is told the key before code is made; true: no
// code is needed. Safe from several threads.
BuiltDevice build_device(const tensor::Func& scheduled, const tensor::Target& target,
                         const codegen::EmitOptions& emit, const codegen::Assembler* assembler,
                         const std::function<bool(const std::string& key)>& is_known = nullptr);

// Of each launch; empty without an assembler.
std::vector<tuner::LaunchFigures> figures_of(const BuiltDevice& built);

}  // namespace mcc::tools
