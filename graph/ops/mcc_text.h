// Operators on strings (domain "mcc"), by what they take and give:
//
//   TextIds        string -> ids; what an input of the model becomes
//   TextStrings    ids -> string; what an output becomes
//   TextConcat     ids, ids of the same shape -> ids
//   TextCount      ids -> i64, how many parts; attributes as StringSplit ("delimiter", "maxsplit")
//   TextSplit      ids, the number of parts -> ids with one more dimension, filled up with ""; the same attributes
//   TextNormalize  ids [n] -> ids [max(n, 1)] of which the first are there, and how many; attributes as StringNormalizer. Without
//                  stop words ids [n] alone
//   TextMatch      ids -> bool; attributes "classes", "accepts", "next", "start" (frontend/regex.h)
//   TextParse      ids -> "to", one of f32, f64, i64, u64
//   TextFormat     f64, i64 or u64 -> ids
//   TextRank       ids -> i64, how many different texts of the tensor come before it
#pragma once

#include "graph/op.h"

namespace mcc::graph {

inline constexpr std::string_view kTextIds = "TextIds";
inline constexpr std::string_view kTextStrings = "TextStrings";

bool is_text_op(const OpDef& op);

}  // namespace mcc::graph
