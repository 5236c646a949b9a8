// Reading the values of command line options.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/import.h"
#include "tensor/target.h"

namespace mcc::tools {

// "X=1x3x224x224" (or X:...) and "N=8", each as given to --input-shape and --dim, into import options. "1..64" in place of a
// number leaves the dimension open, for sizes from 1 to 64.
Status parse_import_options(const std::vector<std::string>& shapes, const std::vector<std::string>& dims,
                            frontend::ImportOptions& options);

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
