# Language, warnings, sanitizers, linker, output folders: what holds for every target of this project.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
set(MCC_SANITIZE OFF CACHE STRING "Build with sanitizers: ON or memory (AddressSanitizer, UndefinedBehaviorSanitizer), threads (ThreadSanitizer)")
option(MCC_WERROR "Treat warnings as errors" ON)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# MCC_CHECK is always on; NDEBUG only silences the assertions inside LLVM's and other libraries' headers.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -fno-omit-frame-pointer")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g1 -fno-omit-frame-pointer")

add_compile_options(
  -Wall
  -Wextra
  -Wimplicit-fallthrough
  -Wswitch
  -Wundef
  -Wvla
  -ffunction-sections
  -fdata-sections
  "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual;-Wextra-semi;-Wredundant-move>")
if(MCC_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  # These three see ghosts in inlined library code (std::string, std::vector, std::optional) with this compiler.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized;-Wno-restrict;-Wno-stringop-overflow>")
endif()

# Source paths below the project are recorded relative to it: no artefact depends on where it was built.
add_compile_options("-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=")

if(MCC_SANITIZE STREQUAL "threads")
  # GCC warns of fences, which it does not follow: those of headers.
  add_compile_options(-fsanitize=thread -Wno-tsan)
  add_link_options(-fsanitize=thread)
elseif(MCC_SANITIZE)
  # vptr checks need every library's RTTI to be instrumented alike; LLVM's and protobuf's are not.
  set(flags -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
  add_compile_options(${flags})
  add_link_options(${flags})
endif()

find_program(MCC_CCACHE ccache)
if(MCC_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER "${MCC_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${MCC_CCACHE}")
endif()

find_program(MCC_MOLD mold)
find_program(MCC_LLD ld.lld)
if(MCC_MOLD)
  add_link_options(-fuse-ld=mold)
elseif(MCC_LLD)
  add_link_options(-fuse-ld=lld)
endif()
add_link_options(-Wl,--gc-sections -Wl,--as-needed)
# Programs have segments that begin pages: else thread-local data at a segment's start may lie in the page before, which is not
# there, and the loader cannot protect it.
add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-Wl,-z,separate-loadable-segments>)

# The build tree has the shape of the installed one, so both find the runtime in the same way.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")

# Where fetched dependencies live; several clones may share one folder.
if(DEFINED ENV{MCC_DEPS_DIR})
  set(mcc_default_deps "$ENV{MCC_DEPS_DIR}")
else()
  set(mcc_default_deps "${CMAKE_SOURCE_DIR}/.deps")
endif()
set(MCC_DEPS_DIR "${mcc_default_deps}" CACHE PATH "Folder that scripts/setup filled")
set(MCC_PYTHON "${MCC_DEPS_DIR}/venv/bin/python3" CACHE FILEPATH "Python with numpy, onnx and onnxruntime, for tests")
