// NVIDIA's assembler, when it is a library, in processes of its own: crashes of it (nvJitLink 13.0 has them, rarely) cost a second
// attempt, not the compiler and what it has done.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/device.h"

namespace mcc::tools {

// The assembler itself where it is a program, or null. Each thread that assembles has a process, started when it is first needed with
// `command` and the library's file behind; empty: this program's assemble-worker. A process that dies is replaced, with a line on
// stderr; where a second one dies of the same PTX, that is the error (kind environment).
std::unique_ptr<codegen::Assembler> isolate(std::unique_ptr<codegen::Assembler> assembler,
                                            std::vector<std::string> command = {});

// Such a process: reads requests from `in` until it ends, writes answers to `out`, one JSON document a line:
//   {"arch": "sm_80", "ptx": ".."}  ->  {"arch", "cubin": "7f45..", "entries": [..], "losses": [..]}  or  {"error": {..}}
// The exit code.
int serve_assembler(const std::string& library, int in, int out);

}  // namespace mcc::tools
