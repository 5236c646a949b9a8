# Target mcc_onnx: ONNX's C++ library as scripts/build_onnx installed it, and the system's protobuf, both static.
# Only frontend (and its tests) links it.

set(Protobuf_USE_STATIC_LIBS ON)
find_package(Protobuf REQUIRED MODULE)

set(mcc_onnx_targets "${MCC_DEPS_DIR}/onnx/lib/cmake/ONNX/ONNXTargets.cmake")
if(NOT EXISTS "${mcc_onnx_targets}")
  message(FATAL_ERROR "ONNX's C++ library is not in ${MCC_DEPS_DIR}/onnx: run scripts/setup first "
    "(MCC_DEPS_DIR names the folder, in the environment or as a CMake variable).")
endif()
# The installed ONNXConfig.cmake asks for protobuf's CMake package, which Debian does not ship; its targets are enough.
include("${mcc_onnx_targets}")

add_library(mcc_onnx INTERFACE)
target_link_libraries(mcc_onnx INTERFACE ONNX::onnx protobuf::libprotobuf Threads::Threads)
