# Target mcc_llvm: LLVM (x86 and NVPTX code generation, passes, ORC JIT, bitcode reading and linking, objcopy) and LLD's ELF
# linker, all static. Only codegen links it.

find_package(LLVM 19.1 REQUIRED CONFIG)

# The package's own link interface of LLVMSupport names libz3.so, which nothing here calls, and zstd as a shared library.
set_property(TARGET LLVMSupport PROPERTY INTERFACE_LINK_LIBRARIES
  "ZLIB::ZLIB;zstd::libzstd_static;LLVMDemangle;dl;m;rt")
# Polly is a plugin compiled into LLVM's tools; its archive is in a package of its own, and we do not use it.
set_property(TARGET LLVMExtensions PROPERTY INTERFACE_LINK_LIBRARIES LLVMSupport)

llvm_map_components_to_libnames(mcc_llvm_libraries
  x86codegen x86asmparser nvptxcodegen passes orcjit linker bitreader irreader lto objcopy option debuginfodwarf)

# By path: the packaged CMake targets of LLD would pull in the shared libLLVM beside the static one.
find_library(MCC_LLD_ELF lldELF PATHS "${LLVM_LIBRARY_DIR}" REQUIRED NO_DEFAULT_PATH)
find_library(MCC_LLD_COMMON lldCommon PATHS "${LLVM_LIBRARY_DIR}" REQUIRED NO_DEFAULT_PATH)

# LLD's library initialises every target that LLVM was built with. We link two of them; the others' initialisers are
# empty functions here. So is the query for Polly.
function(mcc_write_llvm_stubs path)
  set(text "// Generated: initialisers of the LLVM targets that are not linked.\n#include <llvm/Passes/PassPlugin.h>\n\n")
  string(APPEND text "llvm::PassPluginLibraryInfo getPollyPluginInfo();\n")
  string(APPEND text "llvm::PassPluginLibraryInfo getPollyPluginInfo() {\n")
  string(APPEND text "  return {LLVM_PLUGIN_API_VERSION, \"Polly\", \"none\", [](llvm::PassBuilder&) {}};\n}\n\n")
  string(APPEND text "extern \"C\" {\n")
  foreach(target IN LISTS LLVM_TARGETS_TO_BUILD)
    if(NOT target MATCHES "^(X86|NVPTX)$")
      foreach(part TargetInfo Target TargetMC AsmPrinter AsmParser)
        string(APPEND text "void LLVMInitialize${target}${part}();\nvoid LLVMInitialize${target}${part}() {}\n")
      endforeach()
    endif()
  endforeach()
  string(APPEND text "}\n")
  file(CONFIGURE OUTPUT "${path}" CONTENT "${text}" @ONLY)
endfunction()

set(mcc_llvm_stubs_file "${CMAKE_BINARY_DIR}/generated/llvm_stubs.cpp")
mcc_write_llvm_stubs("${mcc_llvm_stubs_file}")
add_library(mcc_llvm_stubs STATIC "${mcc_llvm_stubs_file}")
target_include_directories(mcc_llvm_stubs SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})

separate_arguments(mcc_llvm_definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
add_library(mcc_llvm INTERFACE)
target_include_directories(mcc_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
target_compile_definitions(mcc_llvm INTERFACE ${mcc_llvm_definitions})
target_link_libraries(mcc_llvm INTERFACE
  "${MCC_LLD_ELF}" "${MCC_LLD_COMMON}" ${mcc_llvm_libraries} mcc_llvm_stubs)
