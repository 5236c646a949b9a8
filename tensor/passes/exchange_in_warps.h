// What a warp's threads keep for each other goes from one to the other.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires a function without blocks whose bound loops and buffers obey the rules of tensor/schedule/bind.cpp. Buffers of scope
// warp go to registers: each thread has the elements that it writes. For threads x in 4, y in 8 that write a[.., y, x, ..] a load of
// a[.., i, j, ..] becomes, where i and j are not the thread's own,
//   shuffle_from(a[.., y, x, ..], i * 4 + j)
// What no threads write is global.
Func exchange_in_warps(const Func& f);

}  // namespace mcc::tensor
