# What `cmake --install` puts where, and the package that find_package(topomask) finds.
include(CMakePackageConfigHelpers)

set(TOPOMASK_INSTALL_CMAKEDIR ${CMAKE_INSTALL_LIBDIR}/cmake/topomask)

install(TARGETS topomask topomask_models EXPORT topomaskTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET topomask_video)
  install(TARGETS topomask_video LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(TARGETS topomask_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/topomask DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT topomaskTargets NAMESPACE topomask:: DESTINATION ${TOPOMASK_INSTALL_CMAKEDIR})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/topomaskConfig.cmake.in
  ${PROJECT_BINARY_DIR}/topomaskConfig.cmake INSTALL_DESTINATION ${TOPOMASK_INSTALL_CMAKEDIR})
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/topomaskConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/topomaskConfig.cmake
  ${PROJECT_BINARY_DIR}/topomaskConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindTorchLibraries.cmake
  DESTINATION ${TOPOMASK_INSTALL_CMAKEDIR})
