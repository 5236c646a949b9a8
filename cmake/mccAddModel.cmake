# mcc_add_model(NAME MODEL model.onnx [SHARED] [TARGET target] [TUNE_LOG log] [LOCKED] [OPTIONS option...] [DEPENDS file...])
#
# Compiles a model as a part of the build, again when the model or the log changes.
#
#   mcc_add_model(detector MODEL detector.onnx TARGET cpu:x86-64-v3 TUNE_LOG best.json LOCKED OPTIONS --dim N=1)
#   target_link_libraries(app PRIVATE detector)       # detector.h has the class mcc_models::Detector
#
# A linked model by default: the library NAME brings its header, the runtime and the code with weights. With SHARED a file that the
# program loads, NAME.so in the current binary folder: the property MCC_MODEL_LIBRARY of the target NAME, which is built by default.
#   add_dependencies(app detector)
#   install(FILES $<TARGET_PROPERTY:detector,MCC_MODEL_LIBRARY> DESTINATION share/app)
#
# TARGET    as for `mcc compile`; by default this machine's processor. Name one for what goes to other machines.
# TUNE_LOG  schedules by `mcc tune`; with LOCKED the build fails where it lacks one
# OPTIONS   more of `mcc compile`
# DEPENDS   other files that the model is made of (external data)
#
# MCC_EXECUTABLE is the compiler: that of the package, else the one in PATH.
function(mcc_add_model name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SHARED;LOCKED" "MODEL;TARGET;TUNE_LOG" "OPTIONS;DEPENDS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_MODEL OR (arg_LOCKED AND NOT arg_TUNE_LOG))
    message(FATAL_ERROR "mcc_add_model(${name}): expected MODEL file.onnx, LOCKED only with TUNE_LOG, and of other words "
      "[SHARED] [TARGET target] [TUNE_LOG file] [OPTIONS option...] [DEPENDS file...]; got: ${ARGN}")
  endif()
  if(NOT name MATCHES "^[A-Za-z][A-Za-z0-9_]*$")
    message(FATAL_ERROR "mcc_add_model(${name}): expected a name of letters, digits and underscores, which a C++ class can have")
  endif()
  if(NOT MCC_EXECUTABLE)
    message(FATAL_ERROR "mcc_add_model(${name}): the compiler is not there; set MCC_EXECUTABLE to the path of mcc")
  endif()
  get_filename_component(model "${arg_MODEL}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
  set(words "${model}")
  set(inputs "${model}" "${MCC_EXECUTABLE}")
  foreach(file IN LISTS arg_DEPENDS)
    get_filename_component(file "${file}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    list(APPEND inputs "${file}")
  endforeach()
  if(arg_TARGET)
    list(APPEND words --target "${arg_TARGET}")
  endif()
  if(arg_TUNE_LOG)
    get_filename_component(log "${arg_TUNE_LOG}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    list(APPEND words --tune-log "${log}")
    list(APPEND inputs "${log}")
  endif()
  if(arg_LOCKED)
    list(APPEND words --locked)
  endif()
  list(APPEND words ${arg_OPTIONS})

  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${name}.model")
  file(MAKE_DIRECTORY "${folder}")
  if(arg_SHARED)
    set(outputs "${CMAKE_CURRENT_BINARY_DIR}/${name}.so")
    list(APPEND words -o "${outputs}")
  else()
    set(outputs "${folder}/${name}.a" "${folder}/${name}.h")
    list(APPEND words -o "${folder}/${name}.a" --header "${folder}/${name}.h")
  endif()
  add_custom_command(OUTPUT ${outputs} COMMAND "${MCC_EXECUTABLE}" compile ${words} DEPENDS ${inputs}
    COMMENT "Compiling the model ${arg_MODEL}" VERBATIM)
  if(arg_SHARED)
    add_custom_target(${name} ALL DEPENDS ${outputs})
    set_target_properties(${name} PROPERTIES MCC_MODEL_LIBRARY "${outputs}")
    return()
  endif()
  add_custom_target(${name}_compile DEPENDS ${outputs})
  add_library(${name} STATIC IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES
    IMPORTED_LOCATION "${folder}/${name}.a"
    INTERFACE_INCLUDE_DIRECTORIES "${folder}"
    INTERFACE_LINK_LIBRARIES mcc::runtime)
  add_dependencies(${name} ${name}_compile)
endfunction()
