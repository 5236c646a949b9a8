# Libraries from the system. LLVM and ONNX have files of their own.

find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(TBB REQUIRED)

# Chart.js, one file: goes into the report that `mcc log report` writes.
find_file(MCC_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js REQUIRED NO_DEFAULT_PATH)

# Debian's package; its own CMake files want dmlc's headers, which the C interface does without.
find_path(XGBOOST_INCLUDE_DIR xgboost/c_api.h REQUIRED)
find_library(XGBOOST_LIBRARY xgboost REQUIRED)
add_library(xgboost_c UNKNOWN IMPORTED)
set_target_properties(xgboost_c PROPERTIES
  IMPORTED_LOCATION "${XGBOOST_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${XGBOOST_INCLUDE_DIR}")
