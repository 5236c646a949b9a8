// How fast and how quiet this machine is: a loop of multiply-adds, timed again and again.
#pragma once

#include <cstdint>

namespace mcc::tools {

struct Calibration {
  double gflops = 0;   // of the fastest run on one core, f32; 0: no vector unit that we know
  double best_us = 0;  // of the fastest run
  double noise = 0;    // how much longer the median run takes than the fastest, relative
};

// Takes runs x some 20 microseconds.
Calibration calibrate(int runs = 300);

// What two calibrations around a measurement say of it: the larger noise, or how far the machine's speed has moved.
double noise_between(const Calibration& before, const Calibration& after);

}  // namespace mcc::tools
