# mcc_layer(NAME [DEPS target...] [PRIVATE_DEPS target...] [EXCLUDE regex])
#
# Makes the static library mcc_NAME from every *.cpp below the current folder. Sources include "NAME/file.h"; that
# path resolves only through a folder which holds nothing but a link to this layer's sources, and which is passed on
# along DEPS. So a layer can include what it links and nothing else.
# EXCLUDE leaves out the sources whose path (relative to the layer's folder) matches.

# ARGN: regular expressions of relative paths to leave out.
function(mcc_glob_sources result folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE "${folder}" "${folder}/*.cpp")
  foreach(pattern IN LISTS ARGN)
    list(FILTER sources EXCLUDE REGEX "${pattern}")
  endforeach()
  list(TRANSFORM sources PREPEND "${folder}/")
  set(${result} ${sources} PARENT_SCOPE)
endfunction()

# The include folder of a layer: <build>/include/NAME, holding only the link NAME -> its sources.
function(mcc_stage_headers result name folder)
  set(stage "${CMAKE_BINARY_DIR}/include/${name}")
  file(MAKE_DIRECTORY "${stage}")
  file(CREATE_LINK "${folder}" "${stage}/${name}" SYMBOLIC)
  set(${result} "${stage}" PARENT_SCOPE)
endfunction()

function(mcc_layer name)
  cmake_parse_arguments(arg "" "" "DEPS;PRIVATE_DEPS;EXCLUDE" ${ARGN})
  mcc_glob_sources(sources "${CMAKE_CURRENT_SOURCE_DIR}" ${arg_EXCLUDE})
  if(NOT sources)
    set(empty "${CMAKE_CURRENT_BINARY_DIR}/empty.cpp")
    file(CONFIGURE OUTPUT "${empty}" CONTENT "// This layer has headers only.\n")
    set(sources "${empty}")
  endif()
  mcc_stage_headers(stage ${name} "${CMAKE_CURRENT_SOURCE_DIR}")

  add_library(mcc_${name} STATIC ${sources})
  target_include_directories(mcc_${name} PUBLIC "${stage}")
  target_compile_options(mcc_${name} PUBLIC "-fmacro-prefix-map=${stage}/=")
  target_link_libraries(mcc_${name} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
endfunction()
