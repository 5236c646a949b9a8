// Running functions both ways: compiled for a target, and under the interpreter.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "codegen/codegen.h"
#include "tensor/interpret.h"
#include "tensor/schedule/schedule.h"
#include "tensor/text.h"

namespace mcc::codegen {

using Memory = std::vector<std::vector<std::byte>>;

// The levels that every test of generated code goes through; those that this machine lacks are left out.
const std::vector<tensor::Target>& test_targets();

tensor::Func parse(const std::string& source);

// Space for all parameters; the inputs hold random bits of their type among values that matter (zeros, ones, limits,
// infinities, NaN, small numbers). i64 inputs named "index..." hold 0 .. limit - 1.
Memory random_memory(const tensor::Func& f, uint64_t seed, int64_t index_limit = 1);

// Compiles without contraction across operations, so that results equal the interpreter's to the bit, and runs.
void run_compiled(const tensor::Func& scheduled, const tensor::Target& target, Memory* memory,
                  std::span<const int64_t> dims = {});
void run_interpreted(const tensor::Func& f, Memory* memory, std::span<const int64_t> dims = {});

// What is different in the outputs; empty if nothing is. Equal are the same bits, NaN in both, and floats that differ by
// at most tolerance * (1 + |expected|).
std::string difference(const tensor::Func& f, const Memory& expected, const Memory& actual,
                       double tolerance = 0);

// f is interpreted, scheduled is compiled; the outputs agree.
void expect_same(const tensor::Func& f, const tensor::Func& scheduled, const tensor::Target& target,
                 const Memory& inputs);

// The same with both interpreted; lowered is also its own text.
void expect_same_meaning(const tensor::Func& f, const tensor::Func& lowered, const Memory& inputs);

}  // namespace mcc::codegen
