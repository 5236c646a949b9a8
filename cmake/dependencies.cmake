# Libraries from the system. LLVM and ONNX have files of their own.

find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(TBB REQUIRED)
