# Libraries from the system. LLVM and ONNX have files of their own.

find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(TBB REQUIRED)

# Chart.js, one file: goes into the report that `mcc log report` writes.
find_file(MCC_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js REQUIRED NO_DEFAULT_PATH)
