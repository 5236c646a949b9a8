# cmake --install BUILD --prefix P: the compiler, the runtime with its headers, and a package file for find_package(mcc).

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_LIBDIR lib)

if(TARGET mcc)
  install(TARGETS mcc RUNTIME DESTINATION bin)
endif()
target_include_directories(mcc_abi INTERFACE $<INSTALL_INTERFACE:include>)
set_target_properties(mcc_abi PROPERTIES EXPORT_NAME abi)
# --component runtime: what programs that run models need, without the compiler.
install(TARGETS mcc_runtime mcc_abi EXPORT mccTargets
  LIBRARY DESTINATION lib COMPONENT runtime NAMELINK_COMPONENT runtime)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/runtime/include/mcc" DESTINATION include COMPONENT runtime
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT mccTargets NAMESPACE mcc:: DESTINATION lib/cmake/mcc FILE mccTargets.cmake COMPONENT runtime)

configure_package_config_file("${CMAKE_SOURCE_DIR}/cmake/mccConfig.cmake.in" "${CMAKE_BINARY_DIR}/generated/mccConfig.cmake"
  INSTALL_DESTINATION lib/cmake/mcc)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/generated/mccConfigVersion.cmake" COMPATIBILITY SameMajorVersion)
install(FILES "${CMAKE_BINARY_DIR}/generated/mccConfig.cmake" "${CMAKE_BINARY_DIR}/generated/mccConfigVersion.cmake"
  "${CMAKE_SOURCE_DIR}/cmake/mccAddModel.cmake"
  DESTINATION lib/cmake/mcc COMPONENT runtime)
