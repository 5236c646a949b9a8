// The sketches, one file each. Each schedules the whole function, and says false for a function that it is not for.
#pragma once

#include "tuner/analysis.h"
#include "tuner/draft.h"

namespace mcc::tuner {

// The rules of the default schedules. For every function.
bool sketch_rules(Draft& draft);

// Multi-level tiling (Ansor's and MetaSchedule's SSRSRS) of the contraction with the most work.
bool sketch_tiling(Draft& draft);

// A reduction with few results and many terms: partial results in parallel, then their sum.
bool sketch_rfactor(Draft& draft);

// Hand-written templates (template.h) of a matmul and of a convolution on blocked channels.
bool sketch_template_matmul(Draft& draft);
bool sketch_template_conv2d(Draft& draft);

// ---- Shared by the sketches ----

// The block still stands under one serial loop for each axis.
bool is_free(const tensor::Schedule& s, const BlockInfo& info);
// The only consumer, if it is injective and takes each result once; empty otherwise, and for results that are outputs.
std::string consumer_of(const tensor::Schedule& s, const BlockInfo& info);
// The last of a block's loops below the host in vectors of so many lanes, where that is legal. An empty host: all loops.
void vectorize_below(Draft& draft, const std::string& block, const std::string& host, int64_t lanes);

}  // namespace mcc::tuner
