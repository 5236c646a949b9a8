// Grids whose sizes only a run knows stay within what a GPU takes.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires launches as form_launches makes them. Where there may be more blocks along y or z than a GPU takes (65535), all are counted along
// x, in the order of the loops:
//   bound i in m @{block.y}: bound j in n @{block.x}: bound t @{thread.x}: s
// becomes
//   bound b in m * n @{block.x}: bound t @{thread.x}: let j = b %% n in let i = b // n in s
// Launches of constant sizes stay as they are.
Func limit_grids(const Func& f);

}  // namespace mcc::tensor
