// Reading the values of command line options.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/import.h"
#include "tensor/target.h"

namespace CLI {
class App;
}

namespace mcc::tools {

// What a command line says of a model's inputs: "X=1x3x224x224" (or X:...) for --input-shape, "N=8" for --dim, "1..64" in place of a
// number for a dimension that stays open, for sizes from 1 to 64; "S=3" for --sequence-length, the name of an input for --without, "r=0.25" or "r=1,2,3" for --input-value.
struct InputArguments {
  std::vector<std::string> shapes, dims, lengths, left_out, values;
};
// Adds these options. `help`: what is said of each; empty: what it does.
void add_input_options(CLI::App& command, InputArguments& arguments,
                       const std::string& help = "As for compile");
Status parse_import_options(const InputArguments& arguments, frontend::ImportOptions& options);
// The same options on a command line, each after a space.
std::string input_options_text(const InputArguments& arguments);

// "fp32", "tf32", "fp16" or "bf16", for these targets: GPUs have instructions for the narrower ones from sm_80 on, CPUs none that
// are used.
Result<ElementType> parse_precision(const std::string& name, const std::vector<tensor::Target>& targets,
                                    int opt_level);

// "graph,tensor=DIR" -> {"graph": "DIR", "tensor": "DIR"}.
Result<std::map<std::string, std::string>> parse_emit(const std::vector<std::string>& specs);

// "NAME=FILE" where NAME is one of names (which may contain '='). what says which option it is.
struct NamedFile {
  size_t index = 0;  // into names
  std::string path;
};
Result<NamedFile> parse_named_file(const std::string& spec, const std::vector<std::string>& names,
                                   const std::string& option);

}  // namespace mcc::tools
