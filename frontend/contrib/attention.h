// Attention of several heads, which the operators share: softmax(scale * q k' + bias + mask) v.
#pragma once

#include <optional>

#include "frontend/contrib/expansion.h"

namespace mcc::frontend {

// Batch, queries and keys may be open.
struct AttentionDims {
  int64_t batch = 0, heads = 0;
  int64_t queries = 0;                    // rows of q
  int64_t keys = 0, past = 0, total = 0;  // rows of k and v, those before them, both
  int64_t head = 0, value_head = 0;
};

// [B, rows, heads * head] as [B, heads, rows, head], and back.
Operand split_heads(Expansion& e, const Operand& x, int64_t batch, int64_t rows, int64_t heads, int64_t head);
Operand join_heads(Expansion& e, const Operand& x, const AttentionDims& d);

// What is added to the scores where a key is hidden, broadcast to [B, heads, queries, total]: the attribute mask_filter_value. By
// shape of input i: how many keys each sequence has, [B]; their ends and starts, [2 B]; 0 where hidden, [B, total] or [B, queries,
// total]. "" without a mask; nothing after an error.
std::optional<Operand> key_mask(Expansion& e, int i, const AttentionDims& d, ElementType real);

// What is added to scores by input i: [batch or 1, heads or 1, queries, total].
bool expect_score_bias(Expansion& e, int i, const AttentionDims& d);

// Inputs past (before) and those of now, one after the other.
Operand with_past(Expansion& e, const Operand& past, const Operand& now, const AttentionDims& d);

// The keys that queries see, of those behind the past: up to their own places. "" where they see all.
Operand keys_before(Expansion& e, const AttentionDims& d);

struct Scores {
  double scale = 0;    // 0: 1 / sqrt(head)
  double cap = 0;      // scores tend to it and its negative; 0: no such limit
  Operand bias, mask;  // added; ""
  Operand seen;        // which keys are; "": all
  Operand sink;        // scores of what has no value, [heads, 1, 1], or one number; ""
};

// q, k and v: [B, heads, rows, head]. The result is [B, heads, queries, value_head].
Operand attend(Expansion& e, const AttentionDims& d, const Operand& q, const Operand& k, const Operand& v, const Scores& scores,
               ElementType real);

}  // namespace mcc::frontend
